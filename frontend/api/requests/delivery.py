"""Delivery of callbacks from the queue in Redis."""

import logging
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from cluster_serving.frontend.api.requests.callback import Receivers, Refused
from cluster_serving.frontend.api.requests.store import KEPT, RequestStore, StoredResult, Ticket
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.errors import RequestNotFound
from cluster_serving.frontend.leased_work import TURN, LeasedWork
from cluster_serving.protocol.callbacks import Callback, queue_of

log = logging.getLogger(__name__)

PAUSES = (0.5, 2.0, 8.0, 30.0, 120.0, 600.0, 3600.0, 14400.0)
"""Seconds between the attempts to post a result."""

_WEEK = 7 * 24 * 3600
_MOST_HELD = 1000
_LONGEST_WAIT = 60.0
"""Seconds for which a front end holds a callback whose results are not there yet; others get their turn then."""

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
        await self._work.close()
        await self._receivers.close()

    async def _jobs(self) -> set[str]:
        return {model.job for model in (await self._front.registry.latest()).values()}

    async def _deliver(self, job: str, _: str, content: bytes) -> None:
        """Make one attempt."""
        callback = Callback.parse(content)
        try:
            body = callback.body.encode() or await self._content(callback)
        except RequestNotFound as error:
            await self._give_up(job, callback, str(error))
            return
        if body:
            await self._post(job, callback, body)
        else:
            await self._work.call(job, queue_of(job).renew([callback.id], TURN))

    async def _post(self, job: str, callback: Callback, body: bytes) -> None:
        ticket, queue = Ticket.read(callback.id), queue_of(job)
        try:
            await self._receivers.post(callback.url, ticket.secret, body)
        except Refused as refusal:
            failed = callback.failed(body)
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

    async def _content(self, callback: Callback) -> bytes:
        """Return the body of the message; empty if the results do not come in time."""
        ticket = await self._store.known(callback.id)
        results = await self._store.results(ticket, _LONGEST_WAIT)
        present = [result for result in results if result is not None]
        return await self._write(ticket, present, callback.model) if len(present) == len(results) else b""
