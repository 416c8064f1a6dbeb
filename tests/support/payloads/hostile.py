"""Entries that nobody should send, by name; for tests, the fuzzer and the check of memory."""

from __future__ import annotations

import base64
import decimal
import json
import math
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import cv2
import numpy as np
import pyarrow as pa

from cluster_serving.protocol import tensors
from cluster_serving.protocol.inputs import Image
from cluster_serving.protocol.original import arrow as original_arrow
from cluster_serving.protocol.signature import SPARSE_TYPE

Fields = dict[bytes, bytes]
"""Of a stream entry, without its uri."""

HUGE = 40_000
"""Pixels along either side of an image that is only a header."""

SIZE = 60_000_000
"""Bytes of the largest entries; the default of maxRequestBytes is a little more."""

_WORDS = pa.struct([("data", pa.list_(pa.utf8())), ("shape", pa.list_(pa.int32()))])
_TENSOR = {"kind": "tensor", "dtype": "float32"}


def native(column: pa.Array, **metadata: str) -> Fields:
    """An entry in our encoding of any column, with any metadata."""
    field = pa.field("x", column.type, nullable=pa.types.is_null(column.type), metadata=metadata)
    return {b"serde": b"arrow", b"data": stream(pa.record_batch([column], pa.schema([field])))}


def original(*batches: pa.RecordBatch) -> Fields:
    """An entry in the original's encoding."""
    return {b"data": base64.b64encode(stream(*batches))}


def column(values: pa.Array) -> pa.RecordBatch:
    """A record batch of one column."""
    return pa.record_batch([values], names=["x"])


def as_json(text: str) -> Fields:
    """An entry of the original's HTTP front end."""
    return {b"serde": b"stream", b"data": text.encode()}


def stream(*batches: pa.RecordBatch, **options: Any) -> bytes:
    """An Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _struct(**lists: list[Any]) -> pa.RecordBatch:
    cell = {"indiceData": [], "indiceShape": [], "data": [], "shape": []} | lists
    return column(pa.array([cell], original_arrow._TENSOR))


# Tensors


def _native_tensors() -> Iterator[tuple[str, Fields]]:
    four = pa.array([b"\0" * 4], pa.binary())
    for shape in ("1," * 64 + "1", "-1", "-1,-1", "9" * 30, "2147483648,2147483648", "1e3", "1,,1", " ", "0", "\x00"):
        yield f"tensor of shape {shape[:20]!r}", native(four, **_TENSOR, shape=shape)
    for dtype in ("object", "float128", "datetime64[s]", "O8", "V4", "<U1", "float32,float32", ""):
        yield f"tensor of dtype {dtype!r}", native(four, kind="tensor", dtype=dtype, shape="1")
    yield (
        "sparse of a huge shape",
        native(
            pa.array([{"indices": b"", "values": b""}], SPARSE_TYPE),
            kind="sparse",
            dtype="float32",
            shape="9" * 18,
        ),
    )
    yield (
        "sparse outside its shape",
        native(
            pa.array([{"indices": struct.pack("<q", 1 << 62), "values": b"\0" * 4}], SPARSE_TYPE),
            kind="sparse",
            dtype="float32",
            shape="3",
        ),
    )
    yield (
        "sparse with an index twice",
        native(
            pa.array([{"indices": struct.pack("<2q", 1, 1), "values": b"\0" * 8}], SPARSE_TYPE),
            kind="sparse",
            dtype="float32",
            shape="3",
        ),
    )
    for value in (math.nan, math.inf, -math.inf):
        yield (
            f"tensor of {value}",
            {
                b"serde": b"arrow",
                b"data": tensors.encode({"x": np.full(3, value, "f4")}),
            },
        )
    yield "null cell", native(pa.array([None], pa.binary()), **_TENSOR, shape="1")
    yield "no rows", native(pa.array([], pa.binary()), **_TENSOR, shape="1")
    yield "two rows", native(pa.array([b"1234", b"1234"], pa.binary()), **_TENSOR, shape="1")
    yield "string of null", native(pa.array([[None]], pa.list_(pa.utf8())), kind="string", shape="1")
    yield (
        "compressed",
        {
            b"serde": b"arrow",
            b"data": stream(column(pa.array([b"\0" * (1 << 26)], pa.binary())), compression="zstd"),
        },
    )
    strings = pa.array([[""] * 10_000_000], pa.list_(pa.utf8()))
    yield "ten million strings", native(strings, kind="string", shape="10000000")
    yield "strings that are more than they say", native(strings, kind="string", shape="2")
    yield "huge schema", native(pa.array([b"\0" * 4], pa.binary()), **_TENSOR, shape="1", more="x" * (1 << 20))


def _original_tensors() -> Iterator[tuple[str, Fields]]:
    for name, lists in {
        "absurd shape": {"data": [1.0], "shape": [2**31 - 1] * 4},
        "negative shape": {"data": [1.0], "shape": [-1]},
        "65 dimensions": {"data": [1.0], "shape": [1] * 65},
        "shape whose product overflows": {"data": [], "shape": [2**16] * 4},
        "sparse of a huge shape": {"indiceData": [0], "indiceShape": [1, 1], "data": [1.0], "shape": [2**31 - 1]},
        "sparse with negative indices": {"indiceData": [-1], "indiceShape": [1, 1], "data": [1.0], "shape": [3]},
        "sparse with an index twice": {"indiceData": [1, 1], "indiceShape": [1, 2], "data": [1.0] * 2, "shape": [3]},
        "sparse of odd indices": {"indiceData": [0, 1], "indiceShape": [3], "data": [1.0], "shape": [3]},
        "tensor of NaN": {"data": [math.nan] * 3, "shape": [3]},
        "empty tensor": {"data": [], "shape": [0]},
    }.items():
        yield f"original {name}", original(_struct(**lists))
    strings = pa.array([{"data": [""] * 10_000_000, "shape": [10_000_000]}], _WORDS)
    yield "original ten million strings", original(column(strings))
    yield "original null in a list", original(_struct(data=[None, 1.0], shape=[2]))
    yield "original null struct", original(column(pa.array([None], original_arrow._TENSOR)))
    for name, values in _ARROW_TYPES.items():
        yield f"original {name}", original(column(values))
        yield f"original no rows of {name}", original(column(values.slice(0, 0)))
        yield f"native {name}", native(values, **_TENSOR, shape="1")
    union = column(_ARROW_TYPES["union"])
    yield "original several batches", original(union, union)
    yield "original same name twice", original(pa.record_batch([pa.array(["a|b"])] * 2, names=["x", "x"]))
    yield (
        "original 100,000 inputs",
        original(pa.record_batch([pa.array(["a|b"])] * 100_000, names=[str(number) for number in range(100_000)])),
    )
    yield (
        "original compressed",
        {b"data": base64.b64encode(stream(column(pa.array(["\0" * (1 << 26)])), compression="zstd"))},
    )
    yield "original 60 MB string", original(column(pa.array(["x" * SIZE])))
    yield "original 60 MB of separators", original(column(pa.array(["|" * SIZE])))
    yield "60 MB of no base64", {b"data": b"\xff" * SIZE}
    yield "60 MB of base64", {b"data": b"A" * SIZE}


_ARROW_TYPES = {
    "timestamp": pa.array([0], pa.timestamp("ns", "UTC")),
    "duration": pa.array([0], pa.duration("s")),
    "decimal": pa.array([decimal.Decimal("1.5")], pa.decimal128(38, 10)),
    "nested list": pa.array([[[[[1.0]]]]]),
    "nested struct": pa.array([{"data": {"data": [1.0]}, "shape": {"shape": [1]}}]),
    "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
    "union": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1]), pa.array(["a"])]),
    "map": pa.array([[("a", 1)]], pa.map_(pa.utf8(), pa.int32())),
    "null": pa.nulls(1),
    "large string": pa.array(["a|b"], pa.large_utf8()),
    "fixed size binary": pa.array([b"1234"], pa.binary(4)),
    "half float": pa.array([np.float16(1)], pa.float16()),
    "run end encoded": pa.RunEndEncodedArray.from_arrays([3], [1.0], pa.run_end_encoded(pa.int32(), pa.float64())),
}


# JSON


def _json() -> Iterator[tuple[str, Fields]]:
    def instance(text: str) -> Fields:
        return as_json(f'{{"instances":[{{"x":{text}}}]}}')

    yield "JSON nested 100,000 deep", instance("[" * 100_000 + "]" * 100_000)
    yield "JSON nested 500 deep", instance("[" * 500 + "1" + "]" * 500)
    yield "JSON objects 100,000 deep", as_json('{"instances":' * 100_000)
    yield "JSON of ten million numbers", instance("[" + "1," * 9_999_999 + "1]")
    yield "JSON of ten million lists", instance("[" + "[]," * 9_999_999 + "[]]")
    yield "JSON of five million texts", instance("[" + '"a",' * 4_999_999 + '"a"]')
    yield "JSON of five million keys", instance("{" + ",".join(f'"{n}":1' for n in range(5_000_000)) + "}")
    yield (
        "JSON of five million inputs",
        as_json('{"instances":[{' + ",".join(f'"{n}":1' for n in range(5_000_000)) + "}]}"),
    )
    yield "JSON of five million instances", as_json('{"instances":[' + "{}," * 4_999_999 + "{}]}")
    yield "JSON of all that is taken", instance("[" + "[]," * 1_000_000 + "1," * 3_000_000 + "1]")
    yield (
        "JSON of all the inputs that are taken",
        as_json('{"instances":[{' + ",".join(f'"{n}":[1]' for n in range(65_000)) + "}]}"),
    )
    yield "JSON number of a million digits", instance("1" * 1_000_000)
    yield "JSON numbers of 4,000 digits", instance("[" + ("1" * 4000 + ",") * 10_000 + "1]")
    yield "JSON 60 MB text", instance('"' + "x" * SIZE + '"')
    yield "JSON 60 MB of separators", instance('"' + "|" * SIZE + '"')
    for text in (
        "NaN",
        "Infinity",
        "[1e999]",
        "[[1],[1,2]]",
        '[1,"a"]',
        "null",
        "{}",
        "true",
        '{"shape":[-1]}',
        "[[]]",
    ):
        yield f"JSON {text}", instance(text)
    sparse = {"shape": [1 << 40], "data": [1], "indices": [[0]]}
    yield "JSON sparse of a huge shape", instance(json.dumps(sparse))
    yield "JSON sparse of bad numbers", instance(json.dumps(sparse | {"indices": [[1.5]]}))
    yield "JSON without instances", as_json("{}")
    yield "JSON in UTF-16", {b"serde": b"stream", b"data": '{"instances":[{"x":1}]}'.encode("utf-16")}
    yield "JSON cut off", as_json('{"instances":[{"x":[1,2')


# Images


def _images() -> Iterator[tuple[str, Fields]]:
    for name, data in {**huge_images(), **_damaged_images()}.items():
        yield name, {b"serde": b"arrow", b"data": tensors.encode({"x": Image(data)})}
        yield f"original {name}", {b"data": original_arrow.encode_request({"x": Image(data)}).encode()}
        yield f"0.7 {name}", {b"image": base64.b64encode(data)}


def huge_images() -> dict[str, bytes]:
    """Small files whose headers announce 40,000 x 40,000 pixels."""
    header = struct.pack(">IIBBBBB", HUGE, HUGE, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(b"\0" * 1000))
    small = np.zeros((8, 8, 3), "u1")
    jpeg = cv2.imencode(".jpg", small)[1].tobytes()
    frame = jpeg.index(b"\xff\xc0") + 5
    bmp = cv2.imencode(".bmp", small)[1].tobytes()
    tags = [(256, 4, 1, HUGE), (257, 4, 1, HUGE), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8)]
    tiff = b"II*\0" + struct.pack("<IH", 8, len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags)
    size = (HUGE - 1).to_bytes(3, "little") * 2
    return {
        "huge PNG": png + _chunk(b"IEND", b""),
        "huge JPEG": jpeg[:frame] + struct.pack(">HH", HUGE, HUGE) + jpeg[frame + 4 :],
        "huge BMP": bmp[:18] + struct.pack("<ii", HUGE, HUGE) + bmp[26:],
        "huge TIFF": tiff + b"\0" * 4,
        "huge WebP": b"RIFF\x1e\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + size + b"VP8 \0\0\0\0",
    }


def _damaged_images() -> dict[str, bytes]:
    picture = np.random.default_rng(0).integers(0, 256, (64, 64, 3), "u1")
    bomb = np.zeros((7000, 7000, 3), "u1")
    files = {
        suffix: cv2.imencode(suffix, picture)[1].tobytes() for suffix in (".jpg", ".png", ".bmp", ".webp", ".tiff")
    }
    damaged = {f"cut off {suffix}": data[: len(data) // 2] for suffix, data in files.items()}
    damaged |= {f"scrambled {suffix}": data[:60] + data[60:][::-1] for suffix, data in files.items()}
    # Within maxImagePixels, of a few KB, and so large that a decoder takes long.
    return damaged | {"49 million black pixels": cv2.imencode(".png", bomb)[1].tobytes(), "no image": b"\0" * 100}


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


# Other fields


def _fields() -> Iterator[tuple[str, Fields]]:
    good = {b"serde": b"arrow", b"data": tensors.encode({"x": np.zeros(3, "f4")})}
    yield "no data", {}
    yield "empty data", {b"data": b""}
    yield "unknown serde", good | {b"serde": b"pickle"}
    yield "long serde", good | {b"serde": b"x" * 1_000_000}
    for name in (b"reply_to", b"deadline", b"priority"):
        for value in (b"", b"\xff\xfe", b"-1", b"nan", b"1e999", b"9" * 400, b"x" * 1_000_000, b"\0"):
            yield f"{name.decode()} of {value[:8]!r}", good | {name: value}
    # Our own clients refuse it.
    with mock.patch.object(tensors, "_MAX_SCHEMA_BYTES", 1 << 30):
        many = tensors.encode({f"x{number}": np.zeros(1) for number in range(1000)})
    yield "a thousand inputs", {b"serde": b"arrow", b"data": many}
    yield "long input name", {b"serde": b"arrow", b"data": tensors.encode({"x" * 60_000: np.zeros(1)})}
    for cut in (1, 7, 8, 100, len(good[b"data"]) - 20):
        yield f"our encoding cut at {cut}", good | {b"data": good[b"data"][:cut]}
    yield "random bytes", {b"data": np.random.default_rng(0).bytes(1000)}
    yield "random bytes as ours", {b"serde": b"arrow", b"data": np.random.default_rng(1).bytes(1000)}


GROUPS: dict[str, Callable[[], Iterator[tuple[str, Fields]]]] = {
    "tensors": _native_tensors,
    "original tensors": _original_tensors,
    "JSON": _json,
    "images": _images,
    "fields": _fields,
}
"""Made one after the other, as some are large."""
