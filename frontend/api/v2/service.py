"""The Open Inference Protocol v2 (KServe, Triton) apart from HTTP and gRPC.

Source: the "Open Inference Protocol" of KServe, and the extensions of Triton for classification, model configuration,
repository index and statistics.
"""

from collections.abc import AsyncGenerator, Callable, Container, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from cluster_serving.client.pieces import Restarted
from cluster_serving.frontend.api.json_text import writing_cost
from cluster_serving.frontend.api.v2 import batch as v2_batch
from cluster_serving.frontend.api.v2 import metadata as v2_metadata
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.dataplane import succeeded
from cluster_serving.frontend.errors import Forbidden, ModelNotFound, NotSupported
from cluster_serving.frontend.models.registry import ServedModel
from cluster_serving.frontend.server.offload import LARGE
from cluster_serving.protocol.errors import (
    InvalidInput,
    RedisUnavailable,
    RequestRestarted,
    ResultTimeout,
    ServingError,
    from_wire,
)
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.keys import NORMAL, PRIORITIES
from cluster_serving.protocol.slots import SlotReport

_DEPENDENTS = "unload_dependents"
"""Parameter that Triton's clients send always; no model depends on another."""


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
        batch: Its records, if they were read together with it; there are no inputs then.
    """

    inputs: Mapping[str, Array]
    outputs: Sequence[RequestedOutput] = ()
    id: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    batch: v2_batch.Batch | None = None


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


def unsupported(call: str) -> NotSupported:
    """Return the error for a call of Triton's clients that is not served: its path, or its gRPC method."""
    return NotSupported(
        f"{call[:200]} is not supported here: there are no shared memory, and no settings of traces and logs"
    )


def _with_records(decode: Callable[[], InferRequest], report: SlotReport, most: int) -> InferRequest:
    """Read a request and its records, which are encoded: a process passes bytes on at little cost."""
    request = decode()
    return replace(request, inputs={}, batch=v2_batch.to_records(request.inputs, report, most).encoded())


class V2Service:
    """Answers the calls of the protocol. Calls that name a model raise `ModelNotFound` if there is no such model."""

    def __init__(self, front: FrontEnd) -> None:
        self.front = front

    async def read(
        self, model: ServedModel, decode: Callable[[], InferRequest], holding_gil: int, sharing_gil: int
    ) -> InferRequest:
        """Read a request by a function that a process can take; see `Offload.run` for the sizes."""
        if holding_gil >= LARGE:
            decode = partial(_with_records, decode, self.front.report_of(model), self.front.options.most_records)
        return await self.front.offload.run(decode, holding_gil=holding_gil, sharing_gil=sharing_gil)

    async def infer(
        self, model: ServedModel, request: InferRequest, protocol: str, timeout: float | None = None
    ) -> InferResponse:
        """Answer a request: send its records to the job together, and merge their answers into one batch.

        Metrics count it under `protocol`. The client gives up after `timeout` seconds, if that is known.

        Raises:
            ModelError, ModelNotReady: See `FrontEnd.report_of`.
            InvalidInput: If the request does not fit the protocol or the model.
            ServingError: If a record failed; the error of the first one, with its index in the message.
        """
        front = self.front
        report = front.report_of(model)
        batch = request.batch or v2_batch.to_records(request.inputs, report, front.options.most_records)
        front.metrics.asked(protocol, model.name, len(batch.records))
        _check_outputs(request.outputs, report)
        seconds = self._seconds(request.parameters, timeout)
        priority = _priority(request.parameters)
        outcomes, version = await front.dispatch.predict(
            model.job, batch.records, seconds, priority, model.asked, report.together
        )
        good = succeeded(outcomes)
        wanted = {output.name: output.classes for output in request.outputs}
        outputs = await front.offload.run(partial(batch.merge, good, report, wanted), sharing_gil=writing_cost(good))
        return InferResponse(model.name, version or model.version, request.id, outputs)

    async def stream(
        self, model: ServedModel, request: InferRequest, protocol: str, timeout: float | None = None
    ) -> AsyncGenerator[InferResponse, None]:
        """Yield a response for each piece of the answer to a request of one record; see `infer`.

        Raises:
            RequestRestarted: If the answer begins anew after its first piece.
            ServingError: As `infer`.
        """
        front = self.front
        report = front.report_of(model)
        batch = request.batch or v2_batch.to_records(request.inputs, report, front.options.most_records)
        if len(batch.records) != 1:
            raise InvalidInput(
                f"the request has {len(batch.records)} records; expected one, as the model answers in pieces"
            )
        front.metrics.asked(protocol, model.name, 1)
        _check_outputs(request.outputs, report)
        seconds, priority = self._seconds(request.parameters, timeout), _priority(request.parameters)
        wanted = {output.name: output.classes for output in request.outputs}
        begun = False
        async with aclosing(
            front.dispatch.stream(model.job, batch.records[0], seconds, priority, model.asked)
        ) as pieces:
            async for piece in pieces:
                if isinstance(piece, Restarted):
                    if begun:
                        raise RequestRestarted("the answer began anew after a failure; send the request again")
                    continue
                begun = True
                outputs = batch.merge([piece.outputs], report, wanted)
                yield InferResponse(model.name, piece.version or model.version, request.id, outputs)

    async def ready(self) -> bool:
        """Return True if Redis answers, and all jobs that this front end requires."""
        return not await self.front.health.problems()

    async def model_ready(self, name: str, version: str) -> bool:
        """Return True if the job of a model answers."""
        return not await self.front.health.problem(await self.model(name, version))

    async def model(self, name: str, version: str) -> ServedModel:
        """Return a model, of any version if the version is empty."""
        # For the registry an empty name is the default model; the protocol has no default model.
        if not name:
            raise ModelNotFound("the request names no model")
        return await self.front.registry.model(name, version)

    async def metadata(self, name: str, version: str) -> dict[str, Any]:
        """Return the metadata of a model."""
        model = await self.model(name, version)
        versions = [row.version for row in await self.front.registry.versions() if row.name == name]
        return v2_metadata.metadata(model, versions)

    async def config(self, name: str, version: str) -> dict[str, Any]:
        """Return the configuration of a model in the form of Triton."""
        return v2_metadata.config(await self.model(name, version))

    async def index(self, ready_only: bool = False) -> list[dict[str, Any]]:
        """Return all models and their states, or only the ready ones."""
        rows = [v2_metadata.index_row(model) for model in await self.front.registry.versions()]
        return [row for row in rows if not ready_only or row["state"] == "READY"]

    async def statistics(self, name: str = "", version: str = "") -> dict[str, Any]:
        """Return the statistics of a model; of all models if the name is empty."""
        models = [await self.model(name, version)] if name else await self.front.registry.versions()
        stats = await self.front.registry.stats(models)
        return {"model_stats": list(map(v2_metadata.statistics, models, stats))}

    async def control(self, name: str, action: str, parameters: Iterable[str], timeout: float) -> None:
        """Load or unload a model, as `protocol.model_control` names the actions, in `timeout` seconds.

        Loading again serves the model's files and the configuration of its job as they are now.

        Raises:
            InvalidInput: If the request has parameters that would change the model.
            ServingError: As for `ModelControl.ask`.
        """
        front, model = self.front, await self.model(name, "")
        if others := sorted({*parameters} - {_DEPENDENTS}):
            raise InvalidInput(
                f"the {action} has the parameters {', '.join(others)[:200]}, which are not supported: a model is "
                "loaded as its folder and the config.yaml of its job are"
            )
        try:
            await front.control.ask(model.job, action, timeout)
        except (Forbidden, RedisUnavailable, ResultTimeout):
            raise
        except ServingError as error:
            cause = front.told(str(error), "the log of the job's controller has the cause")
            raise from_wire(error.code, f"failed to {action} {model.name!r}: {cause}") from None
        finally:
            front.registry.forget()
            front.health.forget(model.job)

    def limited(self, timeout: float | None) -> float:
        """Return the seconds that a request may take whose client gives up after `timeout` seconds, if it does."""
        longest = self.front.options.request_timeout / 1000
        return longest if timeout is None else min(timeout, longest)

    def _seconds(self, parameters: Mapping[str, Any], timeout: float | None) -> float:
        if parameters.get("sequence_id") not in (None, 0, ""):
            raise InvalidInput("the request has a sequence_id, but models keep no state between requests")
        limit = self.limited(timeout)
        asked = parameters.get("timeout")
        if not asked:
            return limit
        if type(asked) is not int or asked < 0:
            raise InvalidInput(f"the parameter timeout is {str(asked)[:32]!r}; expected microseconds as an integer")
        return min(limit, asked / 1e6)


def _priority(parameters: Mapping[str, Any]) -> str:
    """Return the priority in the queue of the job. As in Triton, 1 is the highest, and 0 the default."""
    asked = parameters.get("priority") or 0
    if type(asked) is not int or asked < 0:
        raise InvalidInput(f"the parameter priority is {str(asked)[:32]!r}; expected an integer from 0 up")
    return PRIORITIES[min(asked, len(PRIORITIES)) - 1] if asked else NORMAL


def _check_outputs(outputs: Sequence[RequestedOutput], report: SlotReport) -> None:
    names = [output.name for output in outputs]
    if len(set(names)) < len(names):
        raise InvalidInput(f"the request asks for the outputs {names}; expected each name once")
    known = [spec.name for spec in report.outputs]
    for name in names:
        # Of some models, only the answer to the first request tells the outputs.
        if known and name not in known:
            raise v2_batch.no_output(name, known)
