"""Delivery of callbacks from the queue in Redis."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from cluster_serving.frontend.api.requests.callback import Receivers, Refused
from cluster_serving.frontend.api.requests.store import KEPT, RequestStore, StoredResult, Ticket
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.errors import RequestNotFound
from cluster_serving.frontend.models import leased_work
from cluster_serving.frontend.models.leased_work import LeasedWork
from cluster_serving.protocol.asynchronous.callbacks import Callback, queue_of

log = logging.getLogger(__name__)

PAUSES = (0.5, 2.0, 8.0, 30.0, 120.0, 600.0, 3600.0, 14400.0)
"""Seconds between the attempts to post a result."""

_WEEK = 7 * 24 * 3600
_MOST_HELD = 1000
_LONGEST_WAIT = 60.0
"""Seconds for which a front end holds a callback whose results are not there yet; others get their turn then."""

_MOST_POSTED = 80
"""Messages that are written and posted at a time; each may have megabytes."""

_MOST_POSTED_TO_ONE = 20
"""Of these, messages to one host, so that one that is slow leaves room for others."""

_MOST_KEPT = 1000
"""Callbacks of a job that may wait with their bodies in Redis, which a receiver that is away would fill otherwise."""

Write = Callable[[Ticket, list[StoredResult], str], Awaitable[bytes]]


class Delivery:
    """Posts results when they are there, and again until their receivers accept them.

    Args:
        front: The front end.
        store: The requests.
        receivers: The receivers.
        write: Coroutine function that returns the body of a message: of results, and the name of the model.
    """

    def __init__(self, front: FrontEnd, store: RequestStore, receivers: Receivers, write: Write) -> None:
        self._front, self._store, self._receivers, self._write = front, store, receivers, write
        self._work = LeasedWork(front.dispatch, queue_of, self._jobs, self._deliver, _MOST_HELD)
        self._posting = asyncio.Semaphore(_MOST_POSTED)
        self._posting_to: dict[str, asyncio.Semaphore] = {}
        self.start = self._work.start

    async def add(self, ticket: Ticket, url: str, model: str) -> None:
        """Queue the callback of a request."""
        await self._store.keep(ticket, _WEEK)
        await self._work.add(ticket.job, str(ticket), Callback(str(ticket), url, model).content())

    async def remove(self, ticket: Ticket) -> None:
        """Forget the callback of a request, if it has one."""
        await self._work.call(ticket.job, queue_of(ticket.job).end(str(ticket)))

    async def close(self) -> None:
        """Leave the callbacks to other front ends, or to the next one."""
        try:
            await self._work.close()
        finally:
            await self._receivers.close()

    async def _jobs(self) -> set[str]:
        return {model.job for model in (await self._front.registry.latest()).values()}

    async def _deliver(self, job: str, _: str, content: bytes) -> None:
        """Make one attempt."""
        callback = Callback.from_json(content)
        host = callback.url.split("/", 3)[:3][-1]
        place = self._posting_to.setdefault(host, asyncio.Semaphore(_MOST_POSTED_TO_ONE))
        if place.locked() and self._is_crowded:
            await self._work.call(job, queue_of(job).renew([callback.id], leased_work.TURN))
            return
        try:
            results = [] if callback.body else await self._results(callback)
        except RequestNotFound as error:
            await self._give_up(job, callback, str(error))
            return
        if results is None:
            await self._work.call(job, queue_of(job).renew([callback.id], leased_work.TURN))
            return
        async with place, self._posting:
            written = await self._write(Ticket.read(callback.id), results, callback.model) if results else b""
            await self._post(job, callback, written or callback.body.encode())

    async def _post(self, job: str, callback: Callback, body: bytes) -> None:
        ticket, queue = Ticket.read(callback.id), queue_of(job)
        try:
            await self._receivers.post(callback.url, ticket.secret, body)
        except Refused as refusal:
            failed = callback.failed(body if callback.body or await self._may_keep(job) else b"")
            if refusal.is_final or callback.attempts >= len(PAUSES):
                await self._give_up(job, failed, str(refusal))
            else:
                await self._work.call(job, queue.put(failed.id, failed.content(), PAUSES[callback.attempts]))
        else:
            await self._work.call(job, queue.end(callback.id))
            await self._store.keep(ticket, KEPT)

    async def _give_up(self, job: str, callback: Callback, problem: str) -> None:
        # One that is gone was cancelled with its request.
        if await self._work.call(job, queue_of(job).end(callback.id, callback.letter(problem))):
            # The address may hold a secret.
            host = urlsplit(callback.url).hostname
            log.warning("a result was not posted to %s: %s; see cluster-serving-cli dead list %s", host, problem, job)

    async def _may_keep(self, job: str) -> bool:
        dispatcher = self._front.dispatch.dispatcher(job)
        db: Any = dispatcher.db
        with dispatcher.using_redis():
            # The one after the last that may; to count takes a command that present users of Redis may lack.
            return not await db.zrangebyscore(queue_of(job).times, "-inf", "+inf", start=_MOST_KEPT, num=1)

    @property
    def _is_crowded(self) -> bool:
        """True if many callbacks are held, so that none may keep its place without being posted."""
        return self._work.count >= _MOST_HELD / 2

    async def _results(self, callback: Callback) -> list[StoredResult] | None:
        """Return the results; None if they do not come in time, or at once while many callbacks are held."""
        ticket = await self._store.known(callback.id)
        wait = 0.0 if self._is_crowded else _LONGEST_WAIT
        results = await self._store.results(ticket, wait)
        present = [result for result in results if result is not None]
        return present if len(present) == len(results) else None
