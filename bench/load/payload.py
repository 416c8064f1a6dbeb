"""Requests: a few different inputs, their bytes for HTTP, and the numbers of the answers."""

import base64
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cluster_serving.bench.load.http_client import V2_LENGTH
from cluster_serving.protocol.inputs import Array, Image

Value = Array | Image
Record = Mapping[str, Value]
"""One request: the model's inputs by name."""

_PLAIN = {int, float}

VARIANTS = 8
"""Number of different requests of a measurement; an answer to another request is then noticed."""


def random_records(
    name: str, shape: Sequence[int], dtype: str, count: int = VARIANTS, scale: float = 1
) -> list[Record]:
    """Return random tensors, the same ones every time: numbers from 0 to `scale`, or integers from 0 to 100."""
    random = np.random.default_rng(0)
    kind = np.dtype(dtype).kind
    if kind in "fc":
        return [{name: (random.random(shape) * scale).astype(dtype)} for _ in range(count)]
    return [{name: random.integers(0, 2 if kind == "b" else 100, shape).astype(dtype)} for _ in range(count)]


def token_records() -> list[Record]:
    """Return token ids, masks and types of 256 texts, the same ones every time, of 4 to 128 tokens.

    Lengths are those of sentences and short paragraphs: a log-normal distribution with a median of 21 and a mean of 28.
    """
    random = np.random.default_rng(0)
    sizes = np.clip(np.exp(random.normal(3.1, 0.7, 256)), 4, 128).astype(int)
    return [
        {
            "input_ids": random.integers(1, 30_000, size),
            "attention_mask": np.ones(size, int),
            "token_type_ids": np.zeros(size, int),
        }
        for size in sizes
    ]


def text_records(texts: int) -> list[Record]:
    """Return lists of so many texts, the same ones every time, of 3 to 90 numbers below 100, with a median of 16."""
    random = np.random.default_rng(0)
    words = tuple(map(str, range(100)))

    def text() -> str:
        return " ".join(random.choice(words, int(np.clip(np.exp(random.normal(2.8, 0.7)), 3, 90))))

    return [{"text": np.array([text() for _ in range(texts)], object)} for _ in range(VARIANTS)]


def array_records(name: str, file: Path) -> list[Record]:
    """Read a `.npy` file: one record per row of its first axis.

    Raises:
        ValueError: If the array has no rows.
    """
    rows = np.load(file, allow_pickle=False)
    if rows.ndim == 0 or not len(rows):
        raise ValueError(f"{file} holds {rows.dtype}{list(rows.shape)}; expected an axis of records")
    return [{name: np.ascontiguousarray(row)} for row in rows]


def image_records(name: str, source: str) -> list[Record]:
    """Read the image at a path, or the first ones of a folder, or make `synthetic` ones.

    Raises:
        ValueError: If the folder holds no files.
    """
    if source == "synthetic":
        return [{name: Image(_synthetic_jpeg(seed))} for seed in range(VARIANTS)]
    path = Path(source)
    files = sorted(file for file in path.iterdir() if file.is_file())[:VARIANTS] if path.is_dir() else [path]
    if not files:
        raise ValueError(f"the folder {source} holds no files")
    return [{name: Image(file.read_bytes())} for file in files]


def _synthetic_jpeg(seed: int) -> bytes:
    """Return a JPEG of coarse areas with some noise; it takes about as long to decode as a photograph (15 to 25 KB)."""
    import cv2

    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (7, 7, 3)).astype(np.uint8)
    smooth = cv2.resize(coarse, (224, 224), interpolation=cv2.INTER_CUBIC).astype(np.float32)
    pixels = np.clip(smooth + random.normal(0, 12, smooth.shape), 0, 255).astype(np.uint8)
    return cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes()


def size(record: Record) -> int:
    """Return the bytes of a request's values, before any encoding."""
    return sum(len(value.data) if isinstance(value, Image) else value.nbytes for value in record.values())


def encode(kind: str, record: Record, batched: bool = False) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of an HTTP request; `target.Endpoint` has the kinds, and tells what is `batched`."""
    if kind == "raw":
        return raw_body(record), {"Content-Type": "application/octet-stream"}
    if kind == "v2":
        return v2_body(record, batched)
    if kind == "v2-json":
        return v2_json_body(record, batched), {}
    if kind == "embeddings":
        return json.dumps({"model": "bench", "input": np.asarray(record["text"]).tolist()}).encode(), {}
    values = {name: _plain(value) for name, value in record.items()}
    if batched:
        return json.dumps({"instances": _instances(kind, values)}).encode(), {}
    # The models of servers that take rows have one input without a name.
    instances = [values] if kind == "predict" else list(values.values())
    return json.dumps({"instances": instances}).encode(), {}


def _instances(kind: str, columns: Mapping[str, Any]) -> list[Any]:
    if kind != "predict":
        (rows,) = columns.values()
        return list(rows)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def raw_body(record: Record) -> bytes:
    """Return the bytes of the single input: an image file as it is, the numbers in C order, or a JSON list of texts."""
    (value,) = record.values()
    if isinstance(value, Image):
        return value.data
    return json.dumps(value.tolist()).encode() if value.dtype == object else value.tobytes()


def v2_body(record: Record, batched: bool = False) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of a KServe v2 request with binary tensors both ways; unless `batched`, of one record."""
    inputs, tail = [], b""
    for name, value in record.items():
        raw = struct.pack("<I", len(value.data)) + value.data if isinstance(value, Image) else value.tobytes()
        inputs.append({**v2_input(name, value, batched), "parameters": {"binary_data_size": len(raw)}})
        tail += raw
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return head + tail, {"Content-Type": "application/octet-stream", V2_LENGTH: str(len(head))}


def v2_json_body(record: Record, batched: bool = False) -> bytes:
    """Return the body of a KServe v2 request in JSON, unless `batched` of one record; images are base64 text."""
    inputs = []
    for name, value in record.items():
        data = [_base64(value)] if isinstance(value, Image) else value.ravel().tolist()
        inputs.append({**v2_input(name, value, batched), "data": data})
    return json.dumps({"inputs": inputs}).encode()


def v2_input(name: str, value: Value, batched: bool) -> dict[str, Any]:
    """Return name, datatype and shape of an input of KServe v2."""
    if isinstance(value, Image):
        # Triton expects a dimension beside the batch's.
        return {"name": name, "datatype": "BYTES", "shape": [1, 1]}
    datatype = value.dtype.name.upper().replace("FLOAT", "FP")
    return {"name": name, "datatype": datatype, "shape": [*value.shape] if batched else [1, *value.shape]}


def read_v2(body: bytes, head_length: int | None) -> Array:
    """Return all numbers of a KServe v2 answer, flat; strings (BYTES) are classes or JSON."""
    answer = json.loads(body[:head_length])
    offset, parts = head_length or 0, []
    for output in answer["outputs"]:
        length = output.get("parameters", {}).get("binary_data_size")
        if length is None:
            parts.append(numbers(output["data"]))
            continue
        raw = body[offset : offset + length]
        offset += length
        if output["datatype"] == "BYTES":
            parts.append(numbers(_texts(raw)))
        else:
            parts.append(np.frombuffer(raw, output["datatype"].lower().replace("fp", "float")).astype("f8"))
    return np.concatenate(parts) if parts else np.empty(0)


def _texts(raw: bytes) -> list[str]:
    """Split a binary BYTES tensor into its strings; each one follows its length (uint32, little-endian)."""
    texts, position = [], 0
    while position < len(raw):
        (length,) = struct.unpack_from("<I", raw, position)
        texts.append(raw[position + 4 : position + 4 + length].decode())
        position += 4 + length
    return texts


def read_predictions(body: bytes) -> Array:
    """Return all numbers of the answer to `POST /predict`, flat; the original writes each prediction as text."""
    return numbers(json.loads(body)["predictions"])


def numbers(value: object) -> Array:
    """Return every number in nested lists, dicts, arrays and JSON texts, in order, as float64 (n,)."""
    return np.fromiter(_numbers(value), "f8")


def _numbers(value: object) -> Iterator[float]:
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "biuf":
            yield from value.ravel().tolist()
    elif isinstance(value, str):
        text = value.removeprefix("{value=").removesuffix("}") if value.startswith("{value=") else value
        try:
            parsed = json.loads(text.replace("][", "],["))
        except ValueError:
            # A class of KServe is "value:index" or "value:index:label".
            parsed = text.split(":")[:2] if ":" in text else None
        if not isinstance(parsed, str):
            yield from _numbers(parsed)
    elif isinstance(value, list) and _PLAIN.issuperset(map(type, value)):
        # One by one, a thousand numbers take milliseconds of the machine that is measured.
        yield from value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _numbers(item)
    elif isinstance(value, int | float | np.number):
        yield float(value)


def _plain(value: Value) -> object:
    return {"b64": _base64(value)} if isinstance(value, Image) else value.tolist()


def _base64(image: Image) -> str:
    return base64.b64encode(image.data).decode()
