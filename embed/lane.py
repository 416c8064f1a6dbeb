"""A running job as a function of columns, which computes only what the job has no other requests for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import suppress
from multiprocessing.util import Finalize
from typing import Any, TypeVar, cast

import numpy as np
from redis.exceptions import RedisError

from cluster_serving.client.answers.many import Batch
from cluster_serving.client.dispatching.dispatcher import Dispatcher
from cluster_serving.client.result import Result
from cluster_serving.embed.columns import Columns, Scored, collected, gathered, length, piece, rows
from cluster_serving.embed.lull import Lull
from cluster_serving.embed.unanswered import Unanswered
from cluster_serving.job.predictor.record import NamedOutputs
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput, PoisonRequest, ServingError
from cluster_serving.protocol.keys import PRIORITIES, JobKeys
from cluster_serving.protocol.redis.connection import connect_async
from cluster_serving.protocol.slots import TensorSpec, read_reports

*_OTHERS, _PRIORITY = PRIORITIES
_TIMEOUT_S = 300.0
_OF_RECORDS = (InvalidInput, InferenceFailed, PoisonRequest)
"""Errors that a record would have again."""


T = TypeVar("T")


class Lane:
    """A running job as a function of columns, for one thread.

    Rows are sent with the lowest priority, in batches of the job; see `Lull`. Other requests of that priority, such as
    those of a second scoring, do not count as those of others. Without requests of others, each slot has a batch, and
    one waits.

    Args:
        url: Redis of the job.
        job: `jobName`.
        share: Part of the time that batches take while others use the job.

    Raises:
        Unanswered: From every method, if no slot of the job is ready, or a batch has no answer after 5 minutes.
    """

    def __init__(self, url: str, job: str, share: float) -> None:
        self._loop = asyncio.new_event_loop()
        self._job, self._keys, self._lull = job, JobKeys(job), Lull(share)
        self._run(self._open(url))
        # Unlike those of atexit, its functions are called at the end of a process of a pool, too.
        Finalize(None, self._close, exitpriority=1)

    def _close(self) -> None:
        with suppress(RedisError, OSError):
            self._loop.run_until_complete(self._dispatcher.close())

    def _run(self, step: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run_until_complete(step)
        except RedisError as error:
            raise Unanswered(f"job {self._job}: Redis does not answer: {error}") from error

    async def _open(self, url: str) -> None:
        self._db = connect_async(url=url, job=self._job)
        self._dispatcher = Dispatcher(self._db, self._job, retry_budget=_TIMEOUT_S)
        # redis-py types its commands as if they might not be awaitable.
        raw = await cast("Any", self._db.hgetall(self._keys.slots()))
        slots = [slot for slot in read_reports(raw) if slot.state == "ready"]
        if not slots:
            raise Unanswered(f"job {self._job} has no slot that is ready; cluster-serving-start starts it")
        self._report, self._slots = slots[0], len(slots)

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """Inputs; empty if the model takes any inputs."""
        return self._report.inputs

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """Outputs as clients get them; empty if nothing tells them."""
        return self._report.sent or self._report.outputs

    def scored(self, columns: Mapping[str, Any]) -> Scored:
        """Return the outputs of the rows, and the errors of rows without outputs."""
        return self._run(self._scored(gathered(columns, self.inputs)))

    async def _scored(self, columns: Columns) -> Scored:
        most = (self._slots + 1) * self._report.max_batch_size
        outcomes: list[NamedOutputs | ServingError] = []
        while len(outcomes) < length(columns):
            batch = Batch(self._dispatcher, self._job, most, _TIMEOUT_S, _PRIORITY, raise_errors=False)
            outcomes += [self._outcome(result) async for result in batch.results(self._in_turn(columns, len(outcomes)))]
        return collected(outcomes)

    async def _in_turn(self, columns: Columns, start: int) -> AsyncIterator[dict[str, Any]]:
        """Yield the rows from `start`, in batches that wait for their turn; a single batch while others use the job."""
        while start < length(columns):
            await self._look()
            while pause := self._lull.pause(self._loop.time(), self._dispatcher.waiting):
                await asyncio.sleep(pause)
                await self._look()
            end = start + self._lull.size(self._report.max_batch_size)
            for row in rows(piece(columns, start, end)):
                yield sendable(row)
            if self._lull.is_used:
                return
            start = end

    async def _look(self) -> None:
        async with self._db.pipeline(transaction=False) as pipeline:
            for stream in map(self._keys.stream, _OTHERS):
                pipeline.xlen(stream)
                pipeline.xinfo_groups(stream)
            found = await pipeline.execute()
        read = [group["last-delivered-id"] for groups in found[1::2] for group in groups]
        self._lull.look(self._loop.time(), read, sum(found[::2]))

    def _outcome(self, result: Result) -> NamedOutputs | ServingError:
        if result.error is None or isinstance(result.error, _OF_RECORDS):
            return result.error or result.outputs
        raise Unanswered(f"job {self._job}: {result.error}") from result.error


def sendable(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with arrays in place of texts, which a client would take for paths of files."""
    return {name: np.array(value, object) if isinstance(value, str | dict) else value for name, value in row.items()}
