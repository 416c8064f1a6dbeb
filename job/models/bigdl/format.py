"""The module files of BigDL 0.5 and later: a protobuf tree of modules, and the tensors they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster_serving.job.models.bigdl import protobuf
from cluster_serving.job.models.bigdl.protobuf import Fields
from cluster_serving.protocol.inputs import Array

# Numbers of fields: of a module,
_NAME, _SUBMODULES, _WEIGHT, _BIAS, _PREVIOUS, _TYPE, _ATTRIBUTES = 1, 2, 3, 4, 5, 7, 8
_ID, _HAS_PARAMETERS, _PARAMETERS = 12, 15, 16
# of a tensor,
_TENSOR_TYPE, _SIZE, _STRIDE, _OFFSET, _STORAGE, _KIND = 1, 2, 3, 4, 8, 10
# of a storage,
_FLOATS, _DOUBLES, _STORAGE_ID = 2, 3, 9
# and of an attribute, whose value is in one of these. An array has its strings and numbers in the same fields.
_INT32, _INT64, _FLOAT, _DOUBLE, _STRING, _BOOL, _TENSOR = 3, 4, 5, 6, 7, 8, 10
_NAMED, _ARRAY, _DATA_FORMAT = 14, 15, 16

_FLOAT_TYPE, _DOUBLE_TYPE = 2, 3
_ALL_STORAGES = "global_storage"


@dataclass(frozen=True, slots=True)
class Module:
    """A layer or a container.

    Attributes:
        name: Its own, or one made of its type and identity.
        type: Name of its Scala class.
        attributes: Arguments of its constructor and what else it stores: numbers, strings, bools, tensors, lists of
            these, and dicts of names; what only training needs is None.
        parameters: Weight and bias, if it has them.
        previous: Names of the modules before it, if it is in a graph.
        modules: What it contains.
    """

    name: str
    type: str
    attributes: dict[str, Any]
    parameters: list[Array]
    previous: list[str]
    modules: list[Module]


def read(data: bytes) -> Module:
    """Read a module file.

    Raises:
        ValueError: It is none, it is damaged, or it leaves its weights to another file.
    """
    root = protobuf.fields(data)
    if not protobuf.text(root, _TYPE):
        raise ValueError("it has no module")
    return _Reader(root).module(root)


class _Reader:
    """Reads modules whose tensors are views of common storages."""

    def __init__(self, root: Fields) -> None:
        self._storages: dict[int, Array] = {}
        for key, value in _map(root, _ATTRIBUTES).items():
            if key == _ALL_STORAGES:
                for attribute in _map(protobuf.message(value, _NAMED) or {}, 2).values():
                    self._tensor(protobuf.message(attribute, _TENSOR))

    def module(self, data: Fields) -> Module:
        type = protobuf.text(data, _TYPE)
        if protobuf.integer(data, _HAS_PARAMETERS):
            tensors = protobuf.messages(data, _PARAMETERS)
        else:  # before version 0.6
            tensors = [t for t in (protobuf.message(data, number) for number in (_WEIGHT, _BIAS)) if t]
        parameters = [self._tensor(tensor) for tensor in tensors]
        return Module(
            # The name that a module has if it was given none.
            protobuf.text(data, _NAME) or f"{type.rpartition('.')[2]}{protobuf.integer(data, _ID):x}",
            type,
            {k: self._attribute(v) for k, v in _map(data, _ATTRIBUTES).items() if k != _ALL_STORAGES},
            [parameter for parameter in parameters if parameter is not None],
            protobuf.texts(data, _PREVIOUS),
            [self.module(module) for module in protobuf.messages(data, _SUBMODULES)],
        )

    def _attribute(self, data: Fields) -> Any:
        if _ARRAY in data:
            array = protobuf.message(data, _ARRAY) or {}
            return protobuf.texts(array, _STRING) or protobuf.integers(array, _INT32)
        if _TENSOR in data:
            return self._tensor(protobuf.message(data, _TENSOR))
        if _NAMED in data:
            named = protobuf.message(data, _NAMED) or {}
            return {key: self._attribute(value) for key, value in _map(named, 2).items()}
        if _STRING in data:
            return protobuf.text(data, _STRING)
        for number in (_FLOAT, _DOUBLE):
            if number in data:
                return protobuf.real(data, number)
        if _BOOL in data:
            return bool(protobuf.integer(data, _BOOL))
        for number in (_INT32, _INT64, _DATA_FORMAT):
            if number in data:
                return protobuf.integer(data, number)
        return None

    def _tensor(self, data: Fields | None) -> Array | None:
        storage_data = protobuf.message(data, _STORAGE) if data else None
        if data is None or storage_data is None or protobuf.integer(storage_data, _STORAGE_ID) == -1:
            return None
        if protobuf.integer(data, _KIND):
            raise ValueError("it is quantized; serve the model as it was before")
        type = protobuf.integer(data, _TENSOR_TYPE)
        if type not in (_FLOAT_TYPE, _DOUBLE_TYPE):
            return None
        storage = self._storage(storage_data, type)
        sizes, strides = protobuf.integers(data, _SIZE), protobuf.integers(data, _STRIDE)
        start = protobuf.integer(data, _OFFSET) - 1  # Scala counts from 1
        if not sizes:
            return storage[start : start + 1].reshape(()).copy()
        last = start + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        if min(sizes) < 0 or min(strides) < 0 or start < 0 or (0 not in sizes and last >= len(storage)):
            raise ValueError("a tensor goes beyond its storage")
        view = np.lib.stride_tricks.as_strided(
            storage[start:], sizes, [stride * storage.itemsize for stride in strides], writeable=False
        )
        return view.copy()

    def _storage(self, data: Fields, type: int) -> Array:
        key = protobuf.integer(data, _STORAGE_ID)
        content = protobuf.packed(data, _FLOATS if type == _FLOAT_TYPE else _DOUBLES)
        if content:
            dtype = np.dtype("<f4" if type == _FLOAT_TYPE else "<f8")
            self._storages[key] = np.frombuffer(content, dtype)
        if key not in self._storages:
            raise ValueError("its weights are in another file; save the module without a path for its weights")
        return self._storages[key]


def _map(data: Fields, number: int) -> dict[str, Fields]:
    """A protobuf map from strings to messages."""
    return {protobuf.text(entry, 1): protobuf.message(entry, 2) or {} for entry in protobuf.messages(data, number)}
