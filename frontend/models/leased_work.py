"""Work queued in Redis: each process of each front end takes a part (`protocol.asynchronous.leases`)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from contextvars import Context
from typing import Any

from cluster_serving.frontend.models.dispatch import Dispatch
from cluster_serving.protocol.asynchronous import leases
from cluster_serving.protocol.asynchronous.leases import LeaseQueue, claimed
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.scripts import Call, call_async

log = logging.getLogger(__name__)

TURN = 1.0
"""Seconds between two looks at the queues."""

Work = Callable[[str, str, bytes], Awaitable[None]]


class LeasedWork:
    """Claims items, works on them, and renews its leases meanwhile; used by one event loop.

    Args:
        dispatch: The way to the Redis of each job.
        queue_of: Returns the queue of a job.
        jobs: Coroutine function that returns the jobs whose queues are to be looked at.
        work: Coroutine function of job, item and content. It ends the item, or sets when it is looked at next. Whatever
            it leaves is claimed again when the lease has passed.
        most: Most items at a time.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        queue_of: Callable[[str], LeaseQueue],
        jobs: Callable[[], Awaitable[Iterable[str]]],
        work: Work,
        most: int,
    ) -> None:
        self._dispatch, self._queue_of, self._jobs, self._work, self._most = dispatch, queue_of, jobs, work, most
        self._held: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._loop: asyncio.Task[None] | None = None
        # A renewal that overtook a call that sets a later time would undo it.
        self._order = asyncio.Lock()

    @property
    def count(self) -> int:
        """Number of items that are held."""
        return len(self._held)

    def start(self) -> None:
        """Begin to look at the queues."""
        self._loop = asyncio.create_task(self._run())

    async def call(self, job: str, call: Call) -> Any:
        """Run a script on the Redis of a job, after those that were begun before."""
        async with self._order:
            return await self._call(job, call)

    async def _call(self, job: str, call: Call) -> Any:
        dispatcher = self._dispatch.dispatcher(job)
        with dispatcher.using_redis():
            return await call_async(dispatcher.db, call)

    async def add(self, job: str, item: str, content: bytes) -> None:
        """Queue an item, and begin with it if this process has room."""
        has_room = len(self._held) < self._most
        await self.call(job, self._queue_of(job).put(item, content, leases.LEASE if has_room else 0, new=True))
        if has_room:
            self._hold(job, item, content)

    async def close(self) -> None:
        """Leave the items to other front ends, or to the next one."""
        held = list(self._held)
        tasks = [task for task in (self._loop, *self._held.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for job in {job for job, _ in held}:
            await self.call(job, self._queue_of(job).renew([item for of_job, item in held if of_job == job], 0))

    async def _run(self) -> None:
        while True:
            # What one look misses, the next one finds.
            await _logged(self._look_at_all())
            await asyncio.sleep(TURN)

    async def _look_at_all(self) -> None:
        jobs = {*await self._jobs(), *(job for job, _ in self._held)}
        await asyncio.gather(*map(self._look, jobs), return_exceptions=True)

    async def _look(self, job: str) -> None:
        queue = self._queue_of(job)
        async with self._order:
            if items := [item for of_job, item in self._held if of_job == job]:
                await self._call(job, queue.renew(items))
        if room := max(0, self._most - len(self._held)):
            for item, content in claimed(await self.call(job, queue.claim(room))):
                self._hold(job, item, content)

    def _hold(self, job: str, item: str, content: bytes) -> None:
        key = job, item
        if key not in self._held:
            # The work is not part of the request that queued it, whose id and trace end with its answer.
            self._held[key] = Context().run(asyncio.create_task, self._try(job, item, content))

    async def _try(self, job: str, item: str, content: bytes) -> None:
        try:
            await _logged(self._work(job, item, content))
        finally:
            del self._held[job, item]


async def _logged(work: Awaitable[None]) -> None:
    """Await work, which is attempted again if it fails; only errors of the program itself are logged."""
    try:
        with suppress(ServingError):
            await work
    except Exception:
        log.exception("queued work has failed; another attempt follows")
