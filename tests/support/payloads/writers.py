"""Files of formats whose own software is not at hand, written from the definitions of their protobuf messages."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


def caffe_layer(kind: str, bottom: str, top: str, parameters: str = "") -> str:
    """One layer of a prototxt, named as what it computes."""
    return f'layer {{ name: "{top}" type: "{kind}" bottom: "{bottom}" top: "{top}" {parameters} }}\n'


def save_caffe(folder: Path, text: str, weights: dict[str, tuple[str, list[np.ndarray]]]) -> None:
    """Write a prototxt, and as caffemodel the weights: layer → its type, and its blobs.

    The fields of Caffe's messages: NetParameter.layer 100; LayerParameter.name 1, type 2, blobs 7; BlobProto.data 5,
    shape 7; BlobShape.dim 1.
    """

    def blob(array: np.ndarray) -> bytes:
        dims = b"".join(map(varint, array.shape))
        return field(7, field(1, dims)) + field(5, array.astype("<f4").tobytes())

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.prototxt").write_text(text)
    layers = [
        field(1, name.encode()) + field(2, kind.encode()) + b"".join(field(7, blob(array)) for array in blobs)
        for name, (kind, blobs) in weights.items()
    ]
    (folder / "net.caffemodel").write_bytes(b"".join(field(100, layer) for layer in layers))


def varint(number: int) -> bytes:
    """A number in protobuf's variable length."""
    data = bytearray()
    number &= (1 << 64) - 1
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes([*data, number])


def field(number: int, value: bytes | str | int) -> bytes:
    """A protobuf field: a number, or what has a length (bytes, text, a message, packed numbers)."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


class BigDLModule(NamedTuple):
    """A module of a BigDL file, without its tensors' values: `storages` has those, to be written once at the root."""

    data: bytes
    name: str
    previous: list[str]
    storages: list[tuple[int, bytes]]


def bigdl_module(
    kind: str,
    name: str = "",
    attributes: dict[str, Any] | None = None,
    parameters: Sequence[np.ndarray] = (),
    previous: Sequence[str] = (),
    modules: Sequence[BigDLModule] = (),
    package: str = "com.intel.analytics.bigdl.nn",
) -> BigDLModule:
    """A module as BigDL 0.13 writes it: tensors refer to storages that the root holds."""
    storages = [storage for module in modules for storage in module.storages]
    data = field(1, name) + field(7, f"{package}.{kind}") + field(9, "0.13.0") + field(12, 7)
    data += b"".join(field(2, module.data) for module in modules) + b"".join(field(5, name) for name in previous)
    for key, value in (attributes or {}).items():
        if isinstance(value, np.ndarray):
            content = field(1, 10) + field(10, _bigdl_tensor(value, storages))
        else:
            content = bigdl_value(value)
        data += field(8, field(1, key) + field(2, content))
    if parameters:
        data += field(15, 1) + b"".join(field(16, _bigdl_tensor(array, storages)) for array in parameters)
    return BigDLModule(data, name, list(previous), storages)


def bigdl_graph(nodes: Sequence[BigDLModule], inputs: list[str], outputs: list[str], **edges: Any) -> BigDLModule:
    """A StaticGraph; `edges` has, for the nodes where it is not -1, name → previous node → element of its table."""
    attributes: dict[str, Any] = {
        f"{node.name}_edges": dict.fromkeys(node.previous, -1) | edges.get(node.name, {}) for node in nodes
    }
    attributes |= {"inputNames": inputs, "outputNames": outputs}
    return bigdl_module("StaticGraph", "graph", attributes, modules=nodes)


def bigdl_value(value: Any) -> bytes:
    """An attribute: bool, int, float, text, None, a list of ints or texts, or a dict."""
    if value is None:
        return field(1, 10)
    if isinstance(value, dict):
        entries = b"".join(field(2, field(1, key) + field(2, bigdl_value(item))) for key, item in value.items())
        return field(1, 14) + field(14, field(1, "map") + entries)
    if isinstance(value, list) and value and isinstance(value[0], str):
        return field(1, 15) + field(15, field(1, len(value)) + field(2, 4) + b"".join(field(7, v) for v in value))
    if isinstance(value, list):
        return field(1, 15) + field(15, field(1, len(value)) + field(3, b"".join(map(varint, value))))
    if isinstance(value, bool):
        return field(1, 5) + field(8, int(value))
    if isinstance(value, float):
        return field(1, 3) + varint(6 << 3 | 1) + struct.pack("<d", value)
    return field(1, 4) + field(7, value) if isinstance(value, str) else field(1, 0) + field(3, value)


def _bigdl_tensor(array: np.ndarray, storages: list[tuple[int, bytes]]) -> bytes:
    # Behind three other numbers in its storage, as when the parameters of a module share one.
    dtype, number, kind = ("<f4", 2, 2) if array.dtype == np.float32 else ("<f8", 3, 3)
    values = np.concatenate([[9, 9, 9], array.ravel()]).astype(dtype)
    key = zlib.crc32(values.tobytes()) >> 1
    storages.append(
        (key, _bigdl_shape(array, kind) + field(8, field(1, kind) + field(number, values.tobytes()) + field(9, key)))
    )
    return _bigdl_shape(array, kind) + field(8, field(1, kind) + field(9, key))


def _bigdl_shape(array: np.ndarray, kind: int) -> bytes:
    strides = [stride // array.itemsize for stride in np.ascontiguousarray(array).strides]
    sizes = field(2, b"".join(map(varint, array.shape))) + field(3, b"".join(map(varint, strides)))
    return field(1, kind) + sizes + field(4, 4) + field(5, array.ndim) + field(6, array.size) + field(9, 1)


def save_bigdl(folder: Path, module: BigDLModule) -> None:
    """Write a module and all its storages."""
    entries = b"".join(
        field(2, field(1, str(key)) + field(2, field(1, 10) + field(10, tensor))) for key, tensor in module.storages
    )
    storages = field(1, 14) + field(14, field(1, "global_storage") + entries)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.model").write_bytes(module.data + field(8, field(1, "global_storage") + field(2, storages)))
