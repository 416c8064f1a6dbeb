"""Requests whose results are fetched later, by any front end, or read in pieces."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import redis.asyncio

from cluster_serving.client.abilities import PieceIteration, PieceOrRestart, pieces_of
from cluster_serving.client.dispatching.dispatcher import Dispatcher, Pending
from cluster_serving.frontend.caller import origin
from cluster_serving.frontend.models.turns import AT_ONCE
from cluster_serving.protocol.entry import PIECES
from cluster_serving.protocol.keys import NORMAL, SUBMITTED_CHANNEL, JobKeys
from cluster_serving.protocol.redis.connection import translated
from cluster_serving.protocol.results import Fields
from cluster_serving.protocol.scripts import call_all, fetch_call, fields_of
from cluster_serving.protocol.tensors import Inputs


class DeferredDispatcher(Dispatcher):
    """A dispatcher that also takes requests whose results are fetched later, by any front end."""

    def __init__(self, db: redis.asyncio.Redis, **options: Any) -> None:
        # Results of submitted requests are announced to all front ends.
        super().__init__(db, channels=[SUBMITTED_CHANNEL], **options)

    async def submit(
        self,
        job: str,
        uri: str,
        inputs: Inputs,
        priority: str = NORMAL,
        version: str = "",
        in_pieces: bool = False,
        deadline_ms: int | None = None,
        records: int = 0,
        counted: str = "",
    ) -> bytes:
        """Queue a request, and return the id of its stream entry.

        Any process may fetch the result with `look`, or, `in_pieces`, read them with `pieces`. See
        `RequestOptions.deadline_ms` for the deadline.
        """
        pending = Pending(job, uri, asyncio.get_running_loop().create_future(), priority, kept=True)
        await self._find_folder(pending, inputs)
        wish = {"reply_with": PIECES} if in_pieces else {}
        options = {"deadline_ms": deadline_ms, "version": version, "origin": origin(), "records": records}
        pending.compose(inputs, SUBMITTED_CHANNEL, counted=counted, **options, **wish)
        self._queue(uri.encode(), pending)
        await pending.result
        return pending.entry_id or b""

    async def look(self, job: str, uri: str, wait: float = 0.0) -> Fields:
        """Return the result of a submitted request, which stays in Redis; empty if none comes in `wait` seconds."""
        if not wait:
            with self.using_redis():
                fields: Fields = await self.db.hgetall(JobKeys(job).native_result(uri))  # type: ignore[misc]
                return fields
        await self._subscribe()
        name = uri.encode()
        pending = self._pending.get(name)
        if pending is None:
            pending = Pending(job, uri, asyncio.get_running_loop().create_future(), kept=True)
            self._pending[name] = pending
            # The result may have been announced before the subscription.
            self._look({name: None})
        pending.waiters += 1
        try:
            await asyncio.wait((pending.result,), timeout=wait)
            return pending.result.result() if pending.result.done() else {}
        finally:
            pending.waiters -= 1
            if not pending.waiters and self._pending.get(name) is pending:
                del self._pending[name]

    async def look_at_all(self, job: str, uris: Sequence[str]) -> list[Fields]:
        """Return the results of submitted requests, which stay in Redis; empty for each that is not there."""
        keys = list(map(JobKeys(job).native_result, uris))
        # One round trip of several scripts, since Redis serves no other client during one of them.
        calls = [fetch_call(keys[start : start + AT_ONCE]) for start in range(0, len(keys), AT_ONCE)]
        replies: list[Any] = []
        with self.using_redis():
            for page in await call_all(self.db, calls):
                replies += page if isinstance(page, list) else [page]
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
        return [fields_of(reply) for reply in replies]

    def pieces(
        self,
        answer: PieceIteration,
        timeout: float,
        begin: Callable[[], Awaitable[None]] | None = None,
        keep: bool = False,
    ) -> AsyncGenerator[PieceOrRestart, None]:
        """Yield the pieces of an answer, each within `timeout` seconds; see `client.answers.pieces.pieces_of`."""
        return pieces_of(self.db, self._subscription, answer, timeout, partial(translated, self.db), begin, keep)
