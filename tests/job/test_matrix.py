"""Every engine with every input, filter and client, through the bytes of a real entry and back."""

from __future__ import annotations

import base64
import json
import traceback
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import pyarrow as pa
import pytest

from cluster_serving.client.result import read_result
from cluster_serving.client.sending.convert import to_input
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.job.models import load_model
from cluster_serving.job.options import JobOptions, ModelOptions
from cluster_serving.job.predictor import Predictor
from cluster_serving.job.request import Request
from cluster_serving.protocol.entry import parse_entry, request_fields
from cluster_serving.protocol.inputs import Array, Image, Input, SparseTensor
from cluster_serving.protocol.original import arrow as original_arrow
from cluster_serving.protocol.original import image_stream
from tests.support.payloads.compatibility import CLIENTS, FILTERS, IMAGES, KINDS, Excluded, document, excluded
from tests.support.payloads.early_arrow import reframed
from tests.support.payloads.engines import ENGINES, HEIGHT, WIDTH

COUNTS = (1, 3, 32)
SHAPE = (3, 1)  # as its doubling is a vector and a table at once, every filter fits
DTYPES = {"int64": "int64", "uint8": "uint8", "bool": "bool", "strings": "str"}


class Case(NamedTuple):
    """A model with records for it.

    Attributes:
        folder: Folder of the model.
        records: 32 inputs.
        expected: Outputs of the framework called directly.
        shape: Shape of one record.
        messages: Client → its requests for the records, filled by `messages`.
    """

    folder: Path
    records: list[Input]
    expected: Array
    shape: tuple[int, ...]
    messages: dict[str, list[dict[bytes, bytes]]]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Make each model once, and compute what the framework called directly makes of the records."""
    root = tmp_path_factory.mktemp("matrix")

    @cache
    def folder(engine: str, model: str, shape: tuple[int, ...] = SHAPE) -> Path:
        path = root / engine / f"{model}{len(shape)}"
        saver = ENGINES[engine]
        if model == "image":
            saver.save_row_means(path)
        elif model == "number":
            saver.save_doubled(path)
        elif model == "str" and saver.save_words:
            saver.save_words(path, shape)
        else:
            saver.save_twice(path, model, shape)
        return path

    @cache
    def case(engine: str, kind: str, table: bool) -> Case:
        if kind in IMAGES or kind == "pixels":
            path = folder(engine, "image")
            records, batch = images(kind, "HWC" if engine.startswith(("TensorFlow", "Keras")) else "CHW")
        elif kind == "single number":
            path = folder(engine, "number")
            batch = np.arange(32, dtype="f4") / 4
            records = list(batch)
        else:
            # The original's encoding of strings has no shape.
            shape = SHAPE if table or kind != "strings" else SHAPE[:1]
            path = folder(engine, DTYPES.get(kind, "float32"), shape)
            records, batch = tensors(kind, shape)
        return Case(path, records, np.asarray(ENGINES[engine].call(path, batch, "y")), batch.shape[1:], {})

    return case


@pytest.fixture(scope="module")
def loaded():
    """Load each model once for all inputs, filters and clients."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cluster_serving.job.ways.load_model", cache(load_model))
        # A filter that does not fit closes a model that others go on using.
        patch.setattr("cluster_serving.job.servable.ServedModel.close", lambda model: None)
        yield


def tensors(kind: str, shape: tuple[int, ...]) -> tuple[list[Input], Array]:
    numbers = np.random.default_rng(0).integers(0, 250, (32, *shape))
    if kind == "strings":
        # Two or more, as the original's encoding needs.
        words = np.vectorize(lambda number: f"word {number} ü", otypes=[object])(numbers)
        return list(words), words
    batch = numbers % 2 == 0 if kind == "bool" else numbers.astype(DTYPES.get(kind, "float32"))
    if kind in ("float32", "sparse"):
        batch = batch / np.float32(8)
    if kind == "sparse":
        batch[:, 1] = 0
        indices = np.array([[0, 2], [0, 0]])
        return [SparseTensor(indices, record[[0, 2], 0], SHAPE) for record in batch], batch
    return list(batch), batch


@cache
def images(kind: str, layout: str) -> tuple[list[Input], Array]:
    records, decoded = [], []
    for number in range(32):
        pixels = np.random.default_rng(number).integers(0, 256, (HEIGHT, WIDTH, 3), "u1")
        data = encoded(kind, pixels)
        image = cv2.imdecode(np.frombuffer(data, "u1"), cv2.IMREAD_COLOR).astype("f4")
        decoded.append(image if layout == "HWC" else image.transpose(2, 0, 1))
        if kind == "pixels":
            records.append(decoded[-1])
        elif kind == "base64 text":
            records.append(to_input("x", {"b64": base64.b64encode(data).decode()}))
        else:
            records.append(Image(data))
    return records, np.ascontiguousarray(decoded)


def encoded(kind: str, pixels: Array) -> bytes:
    if kind == "gray PNG":
        pixels = pixels[:, :, 0]
    elif kind == "PNG with alpha":
        pixels = np.dstack([pixels, pixels[:, :, 0]])
    elif kind == "16-bit PNG":
        pixels = pixels.astype("u2") * 257
    suffix = {"JPEG": ".jpg", "BMP": ".bmp", "WebP": ".webp", "TIFF": ".tiff"}.get(kind, ".png")
    return cv2.imencode(suffix, pixels)[1].tobytes()


# The requests of each client, and the results as it reads them


def request(client: str, uri: str, value: Input) -> dict[str, str | bytes]:
    if client == "ours":
        return request_fields(uri, {"x": to_input("x", value)})
    if client == "image_stream":
        return {"uri": uri, "image": base64.b64encode(value.data)}
    if client == "JSON":
        return {"uri": uri, "serde": "stream", "data": json.dumps({"instances": [{"x": as_json(value)}]})}
    data = original_arrow.encode_request({"x": np.asarray(value) if isinstance(value, np.generic) else value})
    return {"uri": uri, "data": reframed(data) if client == "early Arrow" else data}


def as_json(value: Input) -> Any:
    if isinstance(value, Image):
        return base64.b64encode(value.data).decode()
    if isinstance(value, SparseTensor):
        return {"shape": value.shape, "data": value.values.tolist(), "indices": value.indices.tolist()}
    return value.tolist()


def answered(client: str, fields: dict[str, str | bytes]) -> Any:
    """Return the result as the client reads it, or raise the error of the answer."""
    raw = {name.encode(): value.encode() if isinstance(value, str) else value for name, value in fields.items()}
    if client == "ours" or b"code" in raw:
        assert client == "ours" or raw[b"value"] == b"NaN"
        result = read_result(raw)
        return result.top_n if b"topN" in raw else result.value
    if client == "image_stream":
        return json.loads(image_stream.early_result(fields)["value"].replace("][", "],["))
    # As the original's `OutputQueue` does.
    with pa.ipc.open_stream(base64.b64decode(raw[b"value"])) as reader:
        (output,) = (
            np.array(batch["data"].to_pylist(), "f4").reshape([size for size in batch["shape"].to_pylist() if size])
            for batch in reader
        )
    return output


def ranking(output: Array) -> Any:
    """Return the result of `topN(2)`."""
    flat = output.ravel()
    best = [(int(index), float(flat[index])) for index in np.argsort(-flat.astype("f8"), kind="stable")[:2]]
    return [pytest.approx(pair, rel=1e-5) for pair in best]


def combinations(engine: str, kind: str) -> list[tuple[str, str]]:
    """Return the filters and clients for which there is such a model and request."""
    pairs = [(text, client) for text in FILTERS for client in CLIENTS]
    rows = [excluded(engine, kind, *pair) for pair in pairs]
    return [pair for pair, row in zip(pairs, rows, strict=True) if row is None or row.answer]


@pytest.mark.parametrize(("engine", "kind"), [(e, k) for e in ENGINES for k in KINDS if combinations(e, k)])
def test_the_answer_is_that_of_the_framework_called_directly(models, loaded, engine, kind):
    """Any filter and any client. Each combination is tried, also after one has failed."""
    failures = []
    for text, client in combinations(engine, kind):
        case = models(engine, kind, kind == "strings" and text.startswith("pick"))
        try:
            check(case, kind, text, client, excluded(engine, kind, text, client))
        except Exception:
            failures.append(f"{client} {text}\n{traceback.format_exc()}")
    assert not failures, "\n".join(failures)


def check(case: Case, kind: str, text: str, client: str, row: Excluded | None) -> None:
    stream = image_stream.STREAM if client == "image_stream" else "job"
    options = JobOptions(
        "start",
        ModelOptions(str(case.folder), input_shapes=(case.shape,) if kind == "single number" else ()),
        RedisOptions("redis://localhost", stream),
        post_processing=text,
    )
    if row is not None:
        with pytest.raises(Exception, match=row.answer):
            answers(Predictor.of(options), stream, client, case, 1)
        return
    predictor = Predictor.of(options)
    for count in COUNTS:
        results, outputs = answers(predictor, stream, client, case, count), case.expected[:count]
        if text.startswith("topN"):
            assert [[tuple(pair) for pair in result] for result in results] == [*map(ranking, outputs)]
        else:
            assert client != "ours" or {result.dtype for result in results} == {outputs.dtype}
            if kind == "single number" and client == "JSON":
                # In the original's JSON a number is a tensor of one element, and so is its answer.
                outputs = outputs[:, np.newaxis]
            compare(np.stack(results), outputs[:, :2] if text else outputs)


def compare(result: Any, expected: Array) -> None:
    if expected.dtype == object:
        assert np.vectorize(as_text)(result).tolist() == np.vectorize(as_text)(expected).tolist()
    else:
        assert np.shape(result) == expected.shape
        np.testing.assert_allclose(np.asarray(result, "f8"), expected.astype("f8"), rtol=1e-5, atol=1e-5)


def as_text(word: str | bytes) -> str:
    return word.decode() if isinstance(word, bytes) else word


def answers(predictor: Predictor, stream: str, client: str, case: Case, count: int) -> list[Any]:
    given = [image_stream.with_serde(stream, fields) for fields in messages(client, case)[:count]]
    entries = [parse_entry(b"%d-0" % number, fields) for number, fields in enumerate(given)]
    results = predictor.start([Request(entry, entry.decode()[1]) for entry in entries], alone=True).answers()
    assert [result.entry.uri for result in results] == [entry.uri for entry in entries]
    return [answered(client, dict(result.fields)) for result in results]


def messages(client: str, case: Case) -> list[dict[bytes, bytes]]:
    """Return the requests of a client as Redis gives them, one for each record."""
    if client not in case.messages:
        requests = [request(client, f"request {number}", record) for number, record in enumerate(case.records)]
        case.messages[client] = [
            {name.encode(): value.encode() if isinstance(value, str) else value for name, value in fields.items()}
            for fields in requests
        ]
    return case.messages[client]


def test_the_page_of_what_goes_together_is_the_generated_one():
    page = Path(__file__).parents[2] / "docs" / "reference" / "compatibility.md"
    assert page.read_text("utf8") == document()
