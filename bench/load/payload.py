"""What is sent: a few different inputs, and their bytes for HTTP, made before the clock starts."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cluster_serving.protocol.inputs import Array, Image

Value = Array | Image
Record = Mapping[str, Value]
"""One request: the model's inputs by name."""

VARIANTS = 8
"""Different requests of one measurement, so that an answer that belongs to another request is noticed."""

_V2_NAMES = {
    "bool": "BOOL",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_V2_DTYPES = {code: name for name, code in _V2_NAMES.items()}
V2_LENGTH = b"inference-header-content-length"
"""Header of the KServe v2 binary extension: length of the JSON in front of the tensors."""


def random_records(
    name: str, shape: Sequence[int], dtype: str, count: int = VARIANTS, scale: float = 1
) -> list[Record]:
    """Random tensors, the same ones every time: numbers from 0 to `scale`, or integers from 0 to 100."""
    random = np.random.default_rng(0)
    kind = np.dtype(dtype).kind
    if kind in "fc":
        return [{name: (random.random(shape) * scale).astype(dtype)} for _ in range(count)]
    return [{name: random.integers(0, 2 if kind == "b" else 100, shape).astype(dtype)} for _ in range(count)]


def array_records(name: str, file: Path) -> list[Record]:
    """Records of a `.npy` file, one per row of its first axis."""
    rows = np.load(file, allow_pickle=False)
    if rows.ndim == 0 or not len(rows):
        raise ValueError(f"{file} holds {rows.dtype}{list(rows.shape)}; expected an axis of records")
    return [{name: np.ascontiguousarray(row)} for row in rows]


def image_records(name: str, source: str) -> list[Record]:
    """The image at a path, or of a folder the first ones, or `synthetic` ones."""
    if source == "synthetic":
        return [{name: Image(_synthetic_jpeg(seed))} for seed in range(VARIANTS)]
    path = Path(source)
    files = sorted(file for file in path.iterdir() if file.is_file())[:VARIANTS] if path.is_dir() else [path]
    if not files:
        raise ValueError(f"the folder {source} holds no files")
    return [{name: Image(file.read_bytes())} for file in files]


def _synthetic_jpeg(seed: int) -> bytes:
    """A JPEG of blotches with some grain, which costs about as much to decode as a photograph (15 to 25 KB)."""
    import cv2

    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (7, 7, 3)).astype(np.uint8)
    smooth = cv2.resize(coarse, (224, 224), interpolation=cv2.INTER_CUBIC).astype(np.float32)
    pixels = np.clip(smooth + random.normal(0, 12, smooth.shape), 0, 255).astype(np.uint8)
    return cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes()


def size(record: Record) -> int:
    """Bytes of a request's values, before any encoding."""
    return sum(len(value.data) if isinstance(value, Image) else value.nbytes for value in record.values())


def predict_body(record: Record) -> bytes:
    """Body of the original's `POST /predict`; images are base64 text."""
    return json.dumps({"instances": [{name: _plain(value) for name, value in record.items()}]}).encode()


def rows_body(record: Record) -> bytes:
    """As `predict_body`, for servers whose models have one nameless input."""
    return json.dumps({"instances": [_plain(value) for value in record.values()]}).encode()


def raw_body(record: Record) -> bytes:
    """The bytes of the single input: an image file as it is, or the numbers in C order."""
    (value,) = record.values()
    return value.data if isinstance(value, Image) else value.tobytes()


def v2_body(record: Record, batched: bool = True) -> tuple[bytes, dict[str, str]]:
    """Body and headers of KServe v2 with binary tensors both ways.

    Args:
        record: The inputs.
        batched: The shape begins with a batch dimension of 1.
    """
    inputs, tail = [], b""
    for name, value in record.items():
        if isinstance(value, Image):
            # Triton wants a dimension beside the batch's.
            raw, code, shape = struct.pack("<I", len(value.data)) + value.data, "BYTES", [1, 1]
        else:
            raw, code, shape = value.tobytes(), _V2_NAMES[value.dtype.name], list(value.shape)
            shape = [1, *shape] if batched or not shape else shape
        inputs.append({"name": name, "shape": shape, "datatype": code, "parameters": {"binary_data_size": len(raw)}})
        tail += raw
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return head + tail, {"Content-Type": "application/octet-stream", V2_LENGTH.decode(): str(len(head))}


def v2_json_body(record: Record) -> bytes:
    """Body of KServe v2 without the binary extension, with a batch dimension of 1; images are base64 text."""
    inputs: list[dict[str, object]] = []
    for name, value in record.items():
        if isinstance(value, Image):
            text = base64.b64encode(value.data).decode()
            inputs.append({"name": name, "shape": [1, 1], "datatype": "BYTES", "data": [text]})
        else:
            shape, code = [1, *value.shape], _V2_NAMES[value.dtype.name]
            inputs.append({"name": name, "shape": shape, "datatype": code, "data": value.ravel().tolist()})
    return json.dumps({"inputs": inputs}).encode()


def read_v2(body: bytes, head_length: int | None) -> Array:
    """All numbers of a KServe v2 answer, flat."""
    answer = json.loads(body[:head_length])
    offset, parts = head_length or 0, []
    for output in answer["outputs"]:
        length = output.get("parameters", {}).get("binary_data_size")
        if length is None:
            parts.append(numbers(output["data"]))
        else:
            dtype = np.dtype(_V2_DTYPES[output["datatype"]])
            parts.append(np.frombuffer(body, dtype, length // dtype.itemsize, offset).astype("f8"))
            offset += length
    return np.concatenate(parts) if parts else np.empty(0)


def read_predictions(body: bytes) -> Array:
    """All numbers of the answer to `POST /predict`, flat; the original writes each prediction as text."""
    return numbers(json.loads(body)["predictions"])


def numbers(value: object) -> Array:
    """Every number in nested lists, dicts, arrays and JSON texts, in order, as float64 (n,)."""
    found: list[float] = []
    _collect(value, found)
    return np.asarray(found, "f8")


def _collect(value: object, found: list[float]) -> None:
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "biuf":
            found.extend(value.astype("f8").ravel().tolist())
    elif isinstance(value, str):
        text = value.removeprefix("{value=").removesuffix("}") if value.startswith("{value=") else value
        try:
            parsed = json.loads(text.replace("][", "],["))
        except ValueError:
            return
        if not isinstance(parsed, str):
            _collect(parsed, found)
    elif isinstance(value, Mapping):
        for item in value.values():
            _collect(item, found)
    elif isinstance(value, list | tuple):
        for item in value:
            _collect(item, found)
    elif isinstance(value, int | float | np.number):
        found.append(float(value))


def _plain(value: Value) -> object:
    if isinstance(value, Image):
        return {"b64": base64.b64encode(value.data).decode()}
    return value.tolist()
