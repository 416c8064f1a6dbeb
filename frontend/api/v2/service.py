"""The Open Inference Protocol v2 (KServe, Triton) apart from how it is transported.

Source: KServe's "Open Inference Protocol" and Triton's extensions for classification, model configuration, repository
index and statistics.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cluster_serving.frontend.api.original import predictions
from cluster_serving.frontend.api.v2 import batch as v2_batch
from cluster_serving.frontend.api.v2 import metadata as v2_metadata
from cluster_serving.frontend.api.v2.metadata import Counts
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.errors import ModelNotFound
from cluster_serving.frontend.models.registry import ServedModel
from cluster_serving.protocol.errors import InvalidInput, ModelError, ServingError
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.keys import NORMAL, PRIORITIES
from cluster_serving.protocol.slots import SlotReport

_TEXT_BYTES = 32


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """One output that a request asks for.

    Attributes:
        name: Its name.
        classes: How many of the largest values to return as "value:class"; 0 for the tensor itself.
        binary: Whether HTTP sends it as binary data; None if the request does not say.
    """

    name: str
    classes: int = 0
    binary: bool | None = None


@dataclass(frozen=True, slots=True)
class InferRequest:
    """A request, however it came.

    Attributes:
        inputs: Name → tensor; BYTES as object array of `bytes`.
        outputs: What it asks for; empty for all.
        id: Identifier, which the response repeats.
        parameters: Of the request as a whole.
    """

    inputs: Mapping[str, Array]
    outputs: Sequence[RequestedOutput] = ()
    id: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InferResponse:
    """A response.

    Attributes:
        model: Name of the model.
        version: Its version.
        id: Identifier of the request.
        outputs: Name → tensor; BYTES as object array of `str`.
    """

    model: str
    version: str
    id: str
    outputs: Mapping[str, Array]


def classes_of(name: str, value: object) -> int:
    """Check the parameter `classification` of an output.

    Raises:
        InvalidInput: It is not a number from 1 up.
    """
    if value is None:
        return 0
    if type(value) is not int or value < 1:
        raise InvalidInput(f"output {name!r} has the parameter classification {value!r}; expected an integer from 1 up")
    return value


def text_bytes(arrays: Iterable[Array]) -> int:
    """How much of tensors is looked at one by one, as if each element were a text of some bytes."""
    return sum(_TEXT_BYTES * array.size for array in arrays if array.dtype == object)


class KServe:
    """Answers the calls of the protocol.

    Args:
        front: The front end.
    """

    def __init__(self, front: FrontEnd) -> None:
        self._offload = front.offload
        self._registry = front.registry
        self._dispatch = front.dispatch
        self._health = front.health
        self._metrics = front.metrics
        self._timeout = front.options.request_timeout / 1000
        self._max_records = front.options.most_records
        self._counts: dict[tuple[str, str], Counts] = {}

    async def infer(self, model: ServedModel, request: InferRequest, timeout: float | None = None) -> InferResponse:
        """Answer a request: its records go to the job together, and their answers come back as one batch.

        Args:
            model: Which one to ask.
            request: The request.
            timeout: Seconds until the caller gives up; None if that is not known.

        Raises:
            ModelError: No slot has loaded it.
            InvalidInput: The request is not what the protocol or the model expects.
            ServingError: A record failed; the first one's error, with its index in the message.
        """
        report = model.loaded
        if report is None:
            states = ", ".join(sorted({slot.state for slot in model.reports})) or "no slots"
            raise ModelError(f"model {model.name!r} is not ready: {states}")
        counts = self._counts.setdefault((model.name, model.version), Counts())
        started = time.monotonic_ns()
        try:
            batch = await self._offload.run(
                partial(v2_batch.to_records, request.inputs, report, self._max_records),
                sharing_gil=text_bytes(request.inputs.values()),
            )
            self._metrics.asked("v2", model.name, len(batch.records))
            _check_outputs(request.outputs, report)
            seconds = self._seconds(request.parameters, timeout)
            answers = await self._dispatch.predict(model.job, batch.records, seconds, _priority(request.parameters))
            good = v2_batch.succeeded(answers)
            wanted = {output.name: output.classes for output in request.outputs}
            outputs = await self._offload.run(
                partial(batch.merge, good, report, wanted), sharing_gil=predictions.size(good)
            )
        except ServingError:
            counts.failed(time.monotonic_ns() - started)
            raise
        counts.succeeded(len(batch.records), time.monotonic_ns() - started)
        return InferResponse(model.name, model.version, request.id, outputs)

    async def ready(self) -> bool:
        """Whether Redis answers, and so do the jobs that this front end is for."""
        return not await self._health.problems()

    async def model_ready(self, name: str, version: str) -> bool:
        """Whether the model's job answers.

        Raises:
            ModelNotFound: There is no such model.
        """
        return not await self._health.problem(await self.model(name, version))

    async def model(self, name: str, version: str) -> ServedModel:
        """A model; of any version if that is empty.

        Raises:
            ModelNotFound: There is no such model.
            RedisUnavailable: Redis cannot be reached.
        """
        # An empty name would be the default model's, of which the protocol knows nothing.
        if not name:
            raise ModelNotFound("the request names no model")
        return await self._registry.model(name, version)

    async def metadata(self, name: str, version: str) -> dict[str, Any]:
        """Metadata of a model.

        Raises:
            ModelNotFound: There is no such model.
        """
        model = await self.model(name, version)
        versions = [row.version for row in await self._registry.versions() if row.name == name]
        return v2_metadata.metadata(model, versions)

    async def config(self, name: str, version: str) -> dict[str, Any]:
        """Configuration of a model, as Triton words it.

        Raises:
            ModelNotFound: There is no such model.
        """
        return v2_metadata.config(await self.model(name, version))

    async def index(self, ready_only: bool = False) -> list[dict[str, Any]]:
        """All models and their states."""
        rows = [v2_metadata.index_row(model) for model in await self._registry.versions()]
        return [row for row in rows if not ready_only or row["state"] == "READY"]

    async def statistics(self, name: str = "", version: str = "") -> dict[str, Any]:
        """What this front end has asked by this protocol since its start; of all models if the name is empty.

        Raises:
            ModelNotFound: There is no such model.
        """
        models = [await self.model(name, version)] if name else await self._registry.versions()
        keys = [(model.name, model.version) for model in models]
        return {"model_stats": [self._counts.get(key, Counts()).row(*key) for key in keys]}

    def _seconds(self, parameters: Mapping[str, Any], timeout: float | None) -> float:
        if parameters.get("sequence_id") not in (None, 0, ""):
            raise InvalidInput("the request has a sequence_id, but models keep no state between requests")
        limits = [self._timeout] if timeout is None else [self._timeout, timeout]
        asked = parameters.get("timeout")
        if asked:
            if type(asked) is not int or asked < 0:
                raise InvalidInput(f"the parameter timeout is {str(asked)[:32]!r}; expected microseconds as an integer")
            limits.append(asked / 1e6)
        return min(limits)


def _priority(parameters: Mapping[str, Any]) -> str:
    """The job's priority of a request: as for Triton 1 is the best, and 0 what is usual."""
    asked = parameters.get("priority") or 0
    if type(asked) is not int or asked < 0:
        raise InvalidInput(f"the parameter priority is {str(asked)[:32]!r}; expected an integer from 0 up")
    return PRIORITIES[min(asked, len(PRIORITIES)) - 1] if asked else NORMAL


def _check_outputs(outputs: Sequence[RequestedOutput], report: SlotReport) -> None:
    names = [output.name for output in outputs]
    if len(set(names)) < len(names):
        raise InvalidInput(f"the request asks for the outputs {names}; expected each name once")
    known = v2_metadata.output_names(report)
    for name in names:
        if known and name not in known:
            raise InvalidInput(f"the model has no output {name[:64]!r}; it has: {', '.join(known)}")
