"""Requests and their results for a whole process, over a few connections: for asyncio clients and the front end.

Whatever becomes due while a command is on its way leaves with the next one: a thousand coroutines that wait share the
commands that queue requests and fetch results, and one subscription. So the cost per request falls as the load grows.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError

from cluster_serving.client.cancel import Place, clear_withdrawn, withdraw_call
from cluster_serving.client.enqueue import adding, refusal
from cluster_serving.client.line import Line
from cluster_serving.client.listener import Listener
from cluster_serving.client.mailbox import RECONNECT_PAUSE, new_channel, replies_in
from cluster_serving.client.pending import Pending
from cluster_serving.client.request_options import RequestOptions
from cluster_serving.protocol.connection import result_timeout_async, translated
from cluster_serving.protocol.entry import RESULT, request_fields
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.inputs import Input
from cluster_serving.protocol.keys import NORMAL, result_key, stream_of, uri_of
from cluster_serving.protocol.payload_files import PayloadFolders
from cluster_serving.protocol.results import Fields
from cluster_serving.protocol.scripts import Call, fetch_call, fields_of, run_async

_DELETE_PAUSE = 0.01
_MOST_AT_ONCE = 256
_MOST_BYTES = 1 << 20  # Redis serves nobody else while it takes them


class Dispatcher:
    """Sends requests to any jobs of one Redis and receives their results; used by one event loop.

    Args:
        db: From `protocol.connection.connect_async`; closed together with the exchange.
        name: Part of the name of its channel, by which permissions in Redis may tell clients.
        window: Seconds for which requests are gathered before they are sent; 0 sends them at once.
        window_count: So many are sent before the window is over.
        observe: Told how long, in seconds, something took: `put` for sending requests, `get` for fetching results that
            did not come with the news of them, and `wait` for a request from sending to its result.
        channels: Further ones on which results are announced.
    """

    def __init__(
        self,
        db: redis.asyncio.Redis,
        name: str = "exchange",
        window: float = 0.0,
        window_count: int = 1,
        observe: Callable[[str, float], None] = lambda name, seconds: None,
        channels: Sequence[str] = (),
    ) -> None:
        self.db = db
        self._sending, self._fetching = Line(db), Line(db)
        self._channel = new_channel(name)
        self._folders = PayloadFolders()
        self._listener = Listener(db, [self._channel, *channels], self._hear, lambda: self._look(self._pending))
        self._window = window
        self._window_count = window_count
        self._full = asyncio.Event()
        self._observe = observe
        self._pending: dict[bytes, Pending] = {}
        self._to_send: dict[bytes, Pending] = {}
        self._to_fetch: dict[bytes, None] = {}
        self._to_delete: list[str] = []
        self._to_withdraw: list[Call] = []
        self._sender: asyncio.Task[None] | None = None
        self._fetcher: asyncio.Task[None] | None = None
        self._due = asyncio.Event()
        self._closing = False

    @property
    def waiting(self) -> int:
        """Number of requests without a result."""
        return len(self._pending)

    async def request(self, job: str, inputs: Mapping[str, Input], timeout: float, priority: str = NORMAL) -> Fields:
        """Queue a request, wait for its result and delete it from Redis.

        If the coroutine is cancelled or its time is over, the request is withdrawn, in the background.

        Args:
            job: `jobName`.
            inputs: See `client.convert.to_inputs`.
            timeout: Seconds to wait; also the request's deadline.
            priority: One of `protocol.keys.PRIORITIES`.

        Returns:
            The result hash; `protocol.results.decode_result` reads it.

        Raises:
            InvalidInput: The inputs cannot be sent.
            QueueFull: Redis takes no more requests.
            RedisUnavailable: Redis cannot be reached.
            ResultTimeout: No result came in time.
        """
        uri = uuid.uuid4().hex
        deadline_ms = RequestOptions.waiting(timeout, priority).deadline_ms
        pending = Pending(job, result_key(job, uri), {}, asyncio.get_running_loop().create_future(), priority)
        name = uri.encode()
        try:
            async with asyncio.timeout(timeout):
                await self._listener.subscribe()
                await self._compose(pending, inputs, self._channel, deadline_ms=deadline_ms, reply_with=RESULT)
                self._pending[name] = pending
                self._queue(name, pending)
                return await pending.result
        except TimeoutError:
            raise await result_timeout_async(self.db, job, timeout) from None
        finally:
            self._pending.pop(name, None)
            if self._to_send.pop(name, None) and pending.folder:
                pending.folder.discard(pending.fields)
            if pending.entry_id is not None and not (pending.result.done() and not pending.result.cancelled()):
                self._withdraw(pending)

    async def close(self) -> None:
        """Close the connections, once the requests for which nobody waits any more are withdrawn."""
        self._closing = True
        self._due.set()
        await self._listener.close()
        if self._sender is not None:
            await self._sender
        if self._fetcher is not None:
            await self._fetcher
        for connection in (self._sending, self._fetching):
            await connection.close()
        await self.db.aclose()
        self._closing = False

    async def _compose(self, pending: Pending, inputs: Mapping[str, Input], reply_to: str, **options: Any) -> None:
        """Make what is sent for a request; `options` are further ones of `protocol.entry.request_fields`."""
        job = pending.job
        with translated(self.db):
            pending.folder = folder = await run_async(self.db, self._folders.find(job, inputs))
        pending.fields = request_fields(
            uri_of(job, pending.key), inputs, reply_to, store=folder.write if folder else None, **options
        )

    def _queue(self, name: bytes, pending: Pending) -> None:
        self._to_send[name] = pending
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())
        elif len(self._to_send) >= self._window_count:
            self._full.set()

    async def _send(self) -> None:
        while self._to_send:
            if self._window and len(self._to_send) < self._window_count:
                await _next(self._full, self._window)
            started = time.perf_counter()
            batch = self._next_batch(started)
            try:
                with translated(self.db):
                    replies = await self._add(batch)
            except ServingError as error:
                replies = [(pending, error) for pending in batch]
            self._observe("put", time.perf_counter() - started)
            for pending, reply in replies:
                if isinstance(reply, bytes):
                    pending.entry_id = reply
                    if pending.result.cancelled():
                        self._withdraw(pending)
                    elif pending.kept:
                        pending.result.set_result({})
                else:
                    refused = refusal(self.db, pending.job, reply)
                    self._folders.clean_up(pending.job, pending.folder, pending.fields, refused)
                    if not pending.result.done():
                        pending.result.set_exception(refused)

    def _next_batch(self, now: float) -> list[Pending]:
        batch: list[Pending] = []
        size = 0
        while self._to_send and len(batch) < _MOST_AT_ONCE and size < _MOST_BYTES:
            pending = self._to_send.pop(next(iter(self._to_send)))
            size += len(pending.fields.get("data", ""))
            pending.sent = now
            batch.append(pending)
        return batch

    async def _add(self, batch: Sequence[Pending]) -> list[tuple[Pending, Any]]:
        """Queue requests, those of a job in one step; see `client.enqueue.adding` for the replies."""
        groups: dict[str, list[Pending]] = {}
        for pending in batch:
            groups.setdefault(pending.job, []).append(pending)
        calls = [adding(job, [(p.fields, p.priority) for p in group]) for job, group in groups.items()]
        deleted, self._to_delete = self._to_delete, []
        if deleted:
            calls.append(fetch_call([], deleted))
        replies: list[Any] = [None]
        try:
            replies = await self._sending.call_all(calls)
        finally:
            if deleted and not isinstance(replies.pop(), list):
                self._to_delete += deleted
        return [
            pair
            for group, reply in zip(groups.values(), replies, strict=True)
            for pair in zip(group, [reply] * len(group) if isinstance(reply, Exception) else reply, strict=True)
        ]

    def _withdraw(self, pending: Pending) -> None:
        """Take a request for which nobody waits out of the stream; if it is being computed, that goes on."""
        place = Place(stream_of(pending.job, pending.priority), pending.entry_id or b"")
        self._to_withdraw.append(withdraw_call(pending.job, uri_of(pending.job, pending.key), place))
        self._look({})

    async def _fetch(self) -> None:
        """Fetch what has been announced; delete what has arrived, unless requests that leave soon take that along."""
        while self._has_errands():
            if not (self._to_fetch or self._to_withdraw or self._closing):
                await _next(self._due, _DELETE_PAUSE)
                if not self._has_errands():
                    return
            names = list(islice(self._to_fetch, _MOST_AT_ONCE))
            waiting = [(name, self._pending[name]) for name in names if name in self._pending]
            for name in names:
                del self._to_fetch[name]
            deleted, self._to_delete = self._to_delete, []
            withdrawn, self._to_withdraw = self._to_withdraw, []
            started = time.perf_counter()
            try:
                fetch = fetch_call([pending.key for _, pending in waiting], deleted)
                replies, *gone = await self._fetching.call_all([fetch, *withdrawn])
                if isinstance(replies, RedisError):
                    raise replies
                for reply in gone:
                    clear_withdrawn(reply)
            except (RedisError, OSError):
                if self._closing:
                    # What could not be withdrawn has a deadline, and what could not be deleted expires.
                    return
                # Nobody announces these results again.
                self._to_fetch.update((name, None) for name, _ in waiting)
                self._to_delete += deleted
                self._to_withdraw += withdrawn
                await asyncio.sleep(RECONNECT_PAUSE)
                continue
            now = time.perf_counter()
            if waiting:
                self._observe("get", now - started)
            for (_, pending), reply in zip(waiting, replies, strict=True):
                if reply and not isinstance(reply, RedisError):
                    self._resolve(pending, fields_of(reply), now)

    def _hear(self, message: object) -> None:
        """Take the results that a message brings, and look for those that it only announces."""
        announced = []
        now = time.perf_counter()
        for name, fields in replies_in(message).items():
            pending = self._pending.get(name)
            if pending is None:
                continue
            if fields:
                self._to_fetch.pop(name, None)
                self._resolve(pending, fields, now)
            else:
                announced.append(name)
        self._look(announced)

    def _resolve(self, pending: Pending, fields: Fields, now: float) -> None:
        if not pending.kept:
            self._to_delete.append(pending.key)
        if not pending.result.done():
            if pending.sent:
                self._observe("wait", now - pending.sent)
            pending.result.set_result(fields)

    def _look(self, names: Iterable[bytes]) -> None:
        self._to_fetch.update(dict.fromkeys(names))
        if self._to_fetch or self._to_withdraw:
            self._due.set()
        if self._has_errands() and (self._fetcher is None or self._fetcher.done()):
            self._fetcher = asyncio.create_task(self._fetch())

    def _has_errands(self) -> bool:
        return bool(self._to_fetch or self._to_delete or self._to_withdraw)


async def _next(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set anew, or for so many seconds."""
    event.clear()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
