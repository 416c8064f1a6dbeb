"""The module files of BigDL 0.5 and later: a protobuf tree of modules, and the tensors that the modules share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from google.protobuf.message import DecodeError

from cluster_serving.job.models.bigdl import bigdl_pb2

_ALL_STORAGES = "global_storage"
_DTYPES = {bigdl_pb2.FLOAT: torch.float32, bigdl_pb2.DOUBLE: torch.float64}


@dataclass(frozen=True, slots=True)
class Module:
    """A layer or a container.

    Attributes:
        name: Name given by the user, or made of the type and the id.
        type: Name of the Scala class.
        attributes: Arguments of the constructor and other stored values: numbers, strings, bools, tensors, lists of
            these, and dicts of names. An attribute that only training needs is None.
        parameters: Weight and bias, if the layer has them.
        previous: Names of the modules before this one in a graph.
        modules: Modules in a container.
    """

    name: str
    type: str
    attributes: dict[str, Any]
    parameters: list[torch.Tensor]
    previous: list[str]
    modules: list[Module]


def read(data: bytes, device: str = "cpu") -> Module:
    """Read a module file, with its tensors on a device of PyTorch.

    Raises:
        ValueError: If the bytes are no module, are damaged, or leave the weights to another file.
    """
    root = bigdl_pb2.BigDLModule()
    try:
        root.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(
            f"it is not a protobuf message, or ends too early: {error}. Load a model of another library in a handler"
        ) from error
    if not root.moduleType:
        raise ValueError("it has no module")
    return _Reader(root, device).module(root)


class _Reader:
    """Reads modules whose tensors are views of common storages."""

    def __init__(self, root: Any, device: str) -> None:
        self._device = device
        self._storages: dict[int, torch.Tensor] = {}
        for attribute in root.attr[_ALL_STORAGES].nameAttrListValue.attr.values():
            self._tensor(attribute.tensorValue)

    def module(self, data: Any) -> Module:
        tensors = data.parameters if data.hasParameters else [data.weight, data.bias]
        parameters = [self._tensor(tensor) for tensor in tensors]
        return Module(
            # BigDL names a module in this way if the user did not.
            data.name or f"{data.moduleType.rpartition('.')[2]}{data.id:x}",
            data.moduleType,
            {key: self._attribute(value) for key, value in data.attr.items() if key != _ALL_STORAGES},
            [parameter for parameter in parameters if parameter is not None],
            list(data.preModules),
            [self.module(module) for module in data.subModules],
        )

    def _attribute(self, data: Any) -> Any:
        kind = data.WhichOneof("value")
        value: Any = getattr(data, kind) if kind else None
        if kind == "arrayValue":
            return list(value.str or value.i32)
        if kind == "tensorValue":
            return self._tensor(value)
        if kind == "nameAttrListValue":
            return {key: self._attribute(inner) for key, inner in value.attr.items()}
        return value

    def _tensor(self, data: Any) -> torch.Tensor | None:
        if not data.HasField("storage") or data.storage.id == -1:
            return None
        if data.tensorType == bigdl_pb2.QUANT:
            raise ValueError("it is quantized; serve the model as it was before")
        if data.datatype not in _DTYPES:
            return None
        storage = self._storage(data.storage, data.datatype)
        sizes = tuple(data.size)
        strides = tuple(data.stride) if sizes else ()
        start = data.offset - 1  # Scala counts from 1
        last = start + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        if min((start, *sizes, *strides)) < 0 or (0 not in sizes and last >= len(storage)):
            raise ValueError("a tensor goes beyond its storage")
        return torch.as_strided(storage, sizes, strides, start).contiguous()

    def _storage(self, data: Any, datatype: int) -> torch.Tensor:
        content = b"".join(data.float_data if datatype == bigdl_pb2.FLOAT else data.double_data)
        if content:
            self._storages[data.id] = torch.frombuffer(bytearray(content), dtype=_DTYPES[datatype]).to(self._device)
        if data.id not in self._storages:
            raise ValueError("its weights are in another file; save the module without a path for its weights")
        return self._storages[data.id]
