"""The way of a request for predictions, the same for all protocols: from its body to records, to the job, and back.

A `Codec` has what differs among protocols, and a `Call` what differs between HTTP and gRPC.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from cluster_serving.client.abilities import PieceOrRestart
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.models.registry import PublishedModel
from cluster_serving.frontend.server.grpc.call import GrpcCall
from cluster_serving.frontend.server.http.call import HttpCall
from cluster_serving.frontend.server.offload import LARGE
from cluster_serving.protocol.columns import Columns, Outcomes
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.results import Outputs
from cluster_serving.protocol.tensors import Inputs

if TYPE_CHECKING:
    from typing_extensions import Self

A = TypeVar("A", bound="DecodedRequest")
R = TypeVar("R")

Call = HttpCall | GrpcCall
"""A request apart from its content."""


def succeeded(outcomes: Outcomes, place: str = "record {}") -> Sequence[Outputs]:
    """Return the outputs of all records of a request, or raise the first error, for protocols without partial answers.

    Its message has the `place` with the index of its record, if there are several.
    """
    if isinstance(outcomes, Columns):
        return outcomes
    good: list[Outputs] = []
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, ServingError):
            if len(outcomes) == 1:
                raise outcome
            error = type(outcome)(f"{place.format(index)}: {outcome}")
            error.version = outcome.version
            raise error
        good.append(outcome)
    return good


@dataclass(frozen=True, slots=True)
class DecodedRequest:
    """What a body asks for. A codec adds what its answer depends on.

    Attributes:
        records: Inputs of each record.
        refused: Index among all records, and error, of each one that is invalid, in protocols that answer the others.
        counted: Inputs whose tokens the job counts, for protocols that tell them; see `protocol.entry.Entry`.
    """

    records: Sequence[Inputs]
    refused: Sequence[tuple[int, ServingError]] = field(default=(), kw_only=True)
    counted: str = field(default="", kw_only=True)

    def encoded(self) -> Self:
        """Return the request with its records as bytes, which a process passes on at a fraction of the cost of arrays.

        Codecs of JSON encode them at once.
        """
        return self

    def without_inputs(self) -> Self:
        """Return what the answer depends on."""
        return replace(self, records=())


class Codec(Generic[A, R]):
    """A protocol: how a body becomes records, and how their outcomes become an answer.

    Whatever is large is decoded and encoded in a process, so a codec, and what its functions take and return, can be
    pickled. Costs are those of `Offload.run`.

    Attributes:
        protocol: Label of the API in the metrics; `grpc` for all services of gRPC.
        needs_signature: False if requests may be sent before a slot has reported the inputs of the model.
    """

    protocol: ClassVar[str]
    needs_signature: ClassVar[bool] = True

    def cost(self, body: Any) -> tuple[int, int]:
        """Return the cost of decoding: that of calls that hold the GIL, and of those that share it."""
        raise NotImplementedError

    def decode(self, body: Any, most: int, described: Any) -> A:
        """Read a body, or a message, of at most `most` records; raise `InvalidInput` if it does not fit the model.

        `described` is the report of a slot on the model, or None; the reports of all models by name if the body has the
        name.
        """
        raise NotImplementedError

    def options(self, call: Call, model: PublishedModel, asked: A) -> tuple[float | None, str]:
        """Check what else a request asks for; return the seconds for which its client waits, and its priority."""
        return call.timeout, call.priority

    def merging_cost(self, outcomes: Outcomes) -> int:
        """Return the cost of `merge`, which shares the GIL: some 0.5 µs for each record that is no row of columns."""
        return 0 if isinstance(outcomes, Columns) else 100 * len(outcomes)

    def merge(self, call: Call, model: PublishedModel, asked: A, outcomes: Outcomes) -> Any:
        """Return an R, what is to be written: by itself the outputs of all records, or the first error is raised."""
        return succeeded(outcomes)

    def encoding_cost(self, asked: A, answer: R) -> int:
        """Return the cost of `encode`, which holds the GIL."""
        raise NotImplementedError

    def encode(self, model: PublishedModel, asked: A, answer: R) -> Any:
        """Write an answer: a body, or a message. If the answer is large, `asked` is without inputs."""
        raise NotImplementedError

    def portable(self, content: Any) -> Any:
        """Return what `encode` has returned in a form that a process passes on; a large answer has this form."""
        return content


class DataPlane:
    """Answers requests for predictions; used by one event loop."""

    def __init__(self, front: FrontEnd) -> None:
        self._front = front
        # Several options make it.
        self._most = front.options.most_records

    async def find(self, call: Call, protocol: str, name: str, version: str = "") -> PublishedModel:
        """Return the model that a request names, and label the request; see `ModelRegistry.model`."""
        model = await self._front.registry.model(name, version)
        call.protocol, call.model = protocol, model.name
        return model

    def infer(self, call: Call, codec: Codec[A, R], model: PublishedModel, body: Any) -> Awaitable[Any]:
        """Return the answer to a request, as the codec writes it.

        Raises:
            ModelError, ModelNotReady: If the model cannot answer; see `FrontEnd.check`.
            ServingError: If the request is invalid, or has failed.
            ClientDisconnect: If the client disconnects; its records are withdrawn then.
        """
        self._front.check(model, needs_signature=codec.needs_signature)
        cost = codec.cost(body)
        if cost[0] < LARGE > cost[1]:
            # Here, and in `answer`, what is small takes no coroutines that only what is large needs.
            return self.answer(call, codec, model, codec.decode(body, self._most, model.described))

        async def read_and_answer() -> Any:
            return await self.answer(call, codec, model, await self.read(codec, body, model.described, cost))

        return read_and_answer()

    async def read(self, codec: Codec[A, R], body: Any, described: Any, cost: tuple[int, int] | None = None) -> A:
        """Return what a body asks for, as `Codec.decode` does; one that takes long is read beside the event loop."""
        holding, sharing = cost or codec.cost(body)
        decode = partial(codec.decode, body, self._most, described)
        if holding >= LARGE:
            decode = partial(_encoded, decode)
        return await self._front.offload.run(decode, holding_gil=holding, sharing_gil=sharing)

    async def answer(self, call: Call, codec: Codec[A, R], model: PublishedModel, asked: A) -> Any:
        """Return the answer to a request that has been read; see `infer`."""
        front = self._front
        front.metrics.asked(call.protocol, model.name, len(asked.records) + len(asked.refused))
        outcomes: Outcomes = ()
        if asked.records:
            seconds, priority = codec.options(call, model, asked)
            work = front.dispatch.predict(
                *(model.job, asked.records, front.limited(seconds), priority, model.asked),
                *(model.together, model.at_once, asked.counted),
            )
            outcomes, call.version = await call.unless_gone(work)
        cost = codec.merging_cost(outcomes)
        if cost < LARGE:
            answer = codec.merge(call, model, asked, outcomes)
        else:
            merge = partial(codec.merge, call, model, asked, outcomes)
            answer = await front.offload.run(merge, sharing_gil=cost)
        cost = codec.encoding_cost(asked, answer)
        if cost < LARGE:
            return codec.encode(model, asked, answer)
        return await self.write(codec, model, asked, answer, cost)

    async def write(
        self, codec: Codec[A, R], model: PublishedModel, asked: A, answer: R, cost: int | None = None
    ) -> Any:
        """Return an answer, or a piece of it, as the codec writes it; a large one is written beside the event loop."""
        cost = codec.encoding_cost(asked, answer) if cost is None else cost
        if cost < LARGE:
            return codec.encode(model, asked, answer)
        work = partial(_portable, codec, model, asked.without_inputs(), answer)
        return await self._front.offload.run(work, holding_gil=cost)

    def streams(
        self, call: Call, codec: Codec[A, R], model: PublishedModel, asked: A
    ) -> list[AsyncGenerator[PieceOrRestart, None]]:
        """Return the pieces of the answer to each record; see `Dispatch.stream`."""
        front = self._front
        front.metrics.asked(call.protocol, model.name, len(asked.records))
        wanted, priority = codec.options(call, model, asked)
        seconds = front.limited(wanted)
        rest = seconds, priority, model.asked, asked.counted
        return [front.dispatch.stream(model.job, record, *rest) for record in asked.records]


def _encoded(decode: partial[A]) -> A:
    return decode().encoded()


def _portable(codec: Codec[A, R], model: PublishedModel, asked: A, answer: R) -> Any:
    return codec.portable(codec.encode(model, asked, answer))
