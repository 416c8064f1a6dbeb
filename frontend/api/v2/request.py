"""Requests and responses of v2, over HTTP or gRPC."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Array


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """An output that a request wants.

    Attributes:
        name: Name of the output.
        classes: Number of the largest values to return as "value:class"; 0 for the tensor itself.
        binary: True for binary data over HTTP, False for JSON; None if the request does not say.
    """

    name: str
    classes: int = 0
    binary: bool | None = None


@dataclass(frozen=True, slots=True)
class InferRequest:
    """A request, over HTTP or gRPC.

    Attributes:
        inputs: Name → tensor; BYTES as object array of `bytes`.
        outputs: Outputs that the request wants; empty for all.
        id: Identifier, which the response repeats.
        parameters: Parameters of the request as a whole.
    """

    inputs: Mapping[str, Array]
    outputs: Sequence[RequestedOutput] = ()
    id: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InferResponse:
    """A response, with the version that answered. Its outputs are tensors by name; BYTES as object array of `str`."""

    model: str
    version: str
    id: str
    outputs: Mapping[str, Array]


def classes_of(name: str, value: object) -> int:
    """Return the number of classes that the parameter `classification` of an output asks for; 0 if it is None."""
    if value is None:
        return 0
    if type(value) is not int or value < 1:
        raise InvalidInput(f"output {name!r} has the parameter classification {value!r}; expected an integer from 1 up")
    return value


def refuse_shared_memory(name: str, parameters: Container[str]) -> None:
    """Refuse a tensor whose parameters name a region of shared memory."""
    if "shared_memory_region" in parameters:
        raise InvalidInput(f"tensor {name!r} lies in shared memory, which is not supported")
