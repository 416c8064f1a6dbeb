"""The way of requests to jobs: one dispatcher for all jobs, or, in a Redis Cluster, one for each job."""

import asyncio
import sys
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from redis.crc import key_slot

from cluster_serving.client.abilities import PieceIteration, PieceOrRestart
from cluster_serving.client.enqueue import RequestOptions
from cluster_serving.client.positions import Position
from cluster_serving.client.result import Result
from cluster_serving.frontend.caller import origin, request_id
from cluster_serving.frontend.errors import ModelNotFound, without_errors
from cluster_serving.frontend.models.deferred import DeferredDispatcher
from cluster_serving.frontend.models.turns import in_window
from cluster_serving.frontend.server.admission.admission import ConcurrencyLimit
from cluster_serving.frontend.server.offload import Offload
from cluster_serving.protocol import columns, results, token_counts
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.keys import NORMAL, JobKeys, to_bytes
from cluster_serving.protocol.redis.addresses import is_cluster_url
from cluster_serving.protocol.redis.connection import connect_async, translated
from cluster_serving.protocol.results import version_of
from cluster_serving.protocol.tensors import Inputs

RETRY_BUDGET = 3.0
"""Seconds for which requests wait for a Redis that is started again, or fails over."""

_LEAST_TIMEOUT = 0.001

# Costs of a record (`Offload.run`), measured: 5 µs, or 20 with an image, and 0.5 µs.
_DIVIDING_COST, _GATHERING_COST = 4000, 100


class Predictions(NamedTuple):
    """Answers to the records of a request.

    Attributes:
        outcomes: Outputs or error of each record.
        version: Version of the model that answered; several, separated by commas, if the job was changed meanwhile or
            tries a second one. Empty if none answered, or the job does not tell.
    """

    outcomes: columns.Outcomes
    version: str


def joined(versions: Iterable[str | None]) -> str:
    """Return the versions that answered the records of a request as one text, each once."""
    return ",".join(sorted({version for version in versions if version}, key=lambda text: (len(text), text)))


class Dispatch:
    """Sends requests and questions about jobs to the Redis of each job; used by one event loop.

    All keys of a job are on one node of a Redis Cluster, so a dispatcher connected to that node serves the job as any
    other Redis does.

    Args:
        redis_url: See `protocol.redis.connection.open_redis`.
        jobs: Names of the jobs, if the URL is that of a Redis Cluster; only these, and models that one of them serves
            under names with the same braces, can be reached then.
        limit: Limit of the instances in flight.
        offload: Decodes large answers.
        redis_options: Further arguments of `protocol.redis.connection.connect_async`.
        options: Further arguments of `Dispatcher`.

    Attributes:
        jobs: Names of the jobs that can be reached; empty if the Redis is not a cluster, for any job.
        home: Name in place of a job's with which the keys of front ends begin; in a Redis Cluster, the first job's.
        limit: Limit of the instances in flight.
        on_answer: Called with the name of each job that answers.
    """

    def __init__(
        self,
        redis_url: str,
        jobs: Sequence[str] = (),
        limit: ConcurrencyLimit | None = None,
        offload: Offload | None = None,
        redis_options: Mapping[str, Any] = MappingProxyType({}),
        **options: Any,
    ) -> None:
        self.jobs = tuple(jobs) if is_cluster_url(redis_url) else ()
        self.home = self.jobs[0] if self.jobs else "cluster-serving"
        self.limit = limit or ConcurrencyLimit(1000)
        # So many are gathered before they are sent.
        self._gathered = int(options["window_count"]) if options.get("window") else 1
        self._offload = offload or Offload()
        self.on_answer: Callable[[str], None] = lambda job: None
        self._dispatchers = {
            self._slot(job): DeferredDispatcher(
                connect_async(url=redis_url, job=job, **redis_options), retry_budget=RETRY_BUDGET, **options
            )
            for job in self.jobs or ("",)
        }

    def dispatcher(self, job: str = "") -> DeferredDispatcher:
        """Return the dispatcher of a job; outside of a Redis Cluster it is the same for any job.

        Raises:
            ModelNotFound: If the job is not among those of this cluster, nor one of their models.
        """
        dispatcher = self._dispatchers.get(self._slot(job))
        if dispatcher is None:
            raise ModelNotFound(f"there is no job {job[:64]!r}")
        return dispatcher

    def _slot(self, job: str) -> int:
        """Return the hash slot of a job and of its models; outside of a Redis Cluster, the same for any job."""
        return key_slot(to_bytes(job)) if self.jobs else 0

    async def ask(self, jobs: Sequence[str], commands: Callable[[Any, str], object]) -> list[list[Any] | ServingError]:
        """Ask Redis about jobs: a pipeline for each Redis, all of them at the same time.

        Returns:
            The replies about each job to the commands that `commands` adds to a pipeline, or the error. An error about
            one job leaves the other jobs' replies intact.
        """
        groups: dict[DeferredDispatcher, list[str]] = {}
        for job in dict.fromkeys(jobs):
            groups.setdefault(self.dispatcher(job), []).append(job)
        answers: dict[str, list[Any] | ServingError] = {}

        async def ask_one(dispatcher: DeferredDispatcher, group: Sequence[str]) -> None:
            # redis-py types its commands as if they might not be awaitable.
            db: Any = dispatcher.db
            ends = []
            try:
                with dispatcher.using_redis():
                    async with db.pipeline(transaction=False) as pipeline:
                        for job in group:
                            commands(pipeline, job)
                            ends.append(len(pipeline))
                        replies = await pipeline.execute(raise_on_error=False)
            except ServingError as error:
                answers.update(dict.fromkeys(group, error))
                return
            for job, start, end in zip(group, [0, *ends[:-1]], ends, strict=True):
                answers[job] = _checked(db, replies[start:end])

        await asyncio.gather(*(ask_one(dispatcher, group) for dispatcher, group in groups.items()))
        return [answers[job] for job in jobs]

    async def ask_all(self, jobs: Sequence[str], commands: Callable[[Any, str], object]) -> list[list[Any]]:
        """Ask Redis about jobs as `ask` does, but raise the first error."""
        return without_errors(await self.ask(jobs, commands))

    async def predict(
        self,
        job: str,
        records: Sequence[Inputs],
        timeout: float,
        priority: str = NORMAL,
        version: str = "",
        together: int = 1,
        at_once: int = sys.maxsize,
        counted: str = "",
    ) -> Predictions:
        """Return the outputs, or the error, of each record of a request, after `timeout` seconds at the latest.

        A `version` that is not empty must answer them. Up to `together` records share an entry of the stream. Records
        beyond `at_once` are sent as others are answered, so that requests of others do not wait for all of them. If
        inputs are `counted` (`protocol.entry.Entry`), numbers of tokens are among the outputs.
        """
        if len(records) == 1:
            # A task would cost a tenth of a small request.
            (outcome,), answered_by = await self._answer(job, records[0], 1, timeout, priority, version, counted)
            return Predictions([outcome], answered_by or "")
        began = time.monotonic()
        chunks = await self.chunks(records, together)

        def left() -> float:
            return max(timeout - (time.monotonic() - began), _LEAST_TIMEOUT)

        works = (self._answer(job, inputs, len(at), left(), priority, version, counted) for at, inputs in chunks)
        largest = max(len(indices) for indices, _ in chunks)
        size = min(len(chunks), self.limit.most, max(2, self._gathered, at_once // largest))
        answers = await in_window(works, size)
        gather = partial(columns.gathered, chunks, [answered for answered, _ in answers])
        outcomes = await self._offload.run(gather, sharing_gil=_GATHERING_COST * len(records))
        return Predictions(outcomes, joined(version for _, version in answers))

    async def chunks(self, records: Sequence[Inputs], together: int) -> list[columns.Chunk]:
        """Divide records into entries, beside the event loop if it takes long; see `protocol.columns.chunks`."""
        cost = 0 if isinstance(records, columns.Columns) else _DIVIDING_COST * len(records)
        return await self._offload.run(partial(columns.chunks, records, together), sharing_gil=cost)

    async def stream(
        self, job: str, record: Inputs, timeout: float, priority: str = NORMAL, version: str = "", counted: str = ""
    ) -> AsyncGenerator[PieceOrRestart, None]:
        """Yield the pieces of the answer to a record, each within `timeout` seconds.

        If the iteration ends before, the request is stopped. If inputs are `counted` (`protocol.entry.Entry`), the last
        piece has the numbers of tokens.

        Raises:
            ServingError: If the request failed.
        """
        options = RequestOptions.waiting(timeout, priority, version or None)
        dispatcher = self.dispatcher(job)
        answer = PieceIteration(job, f"{uuid.uuid4().hex}/{request_id.get()}")

        async def begin() -> None:
            entry = await dispatcher.submit(
                job, answer.uri, record, priority, options.version_text, in_pieces=True, counted=counted
            )
            answer.position = Position(JobKeys(job).stream(priority), entry)

        async with self.limit.place(timeout), aclosing(dispatcher.pieces(answer, timeout, begin)) as pieces:
            async for piece in pieces:
                self.on_answer(job)
                yield piece
        if answer.tokens:
            yield Result(token_counts.arrays(answer.tokens))

    async def close(self) -> None:
        """Close the connections."""
        for dispatcher in self._dispatchers.values():
            await dispatcher.close()

    async def _answer(
        self, job: str, inputs: Inputs, records: int, timeout: float, priority: str, version: str, counted: str
    ) -> tuple[columns.Outcomes, str | None]:
        """Return the outcome of each record of an entry, and the version that has answered."""
        began = time.monotonic()
        try:
            waited = await self.limit.take(timeout)
            try:
                seconds = max(timeout - (time.monotonic() - began), _LEAST_TIMEOUT) if waited else timeout
                column = records if records > 1 else 0
                fields = await self.dispatcher(job).request(
                    job, inputs, seconds, priority, version or None, origin(), column, request_id.get(), counted
                )
                self.on_answer(job)
                cost = results.cost(fields)
                outcomes = await self._offload.run(partial(columns.outcomes, fields, records), holding_gil=cost)
                if counted:
                    outcomes = token_counts.as_outputs(outcomes, fields)
                return outcomes, version_of(fields)
            finally:
                self.limit.give()
        except ServingError as error:
            return columns.all_failed(error, records), error.version


def _checked(db: Any, replies: list[Any]) -> list[Any] | ServingError:
    """Return the replies, or the first error among them."""
    try:
        with translated(db):
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
    except ServingError as error:
        return error
    return replies
