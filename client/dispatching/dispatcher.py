"""Requests and results of a whole process over a few connections, for asyncio clients and the front end.

Commands that become due while one is in flight are sent together in the next. So a thousand waiting coroutines share
the commands that queue requests and fetch results, and one subscription: the cost per request falls as the load grows.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import islice
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError

from cluster_serving.client.announcements import RECONNECT_PAUSE, new_channel, replies_in
from cluster_serving.client.cancel import discard_file, withdraw_call
from cluster_serving.client.dispatching.connection import DedicatedAsyncConnection
from cluster_serving.client.dispatching.subscription import AsyncSubscription
from cluster_serving.client.enqueue import RequestOptions, add_call, refusal
from cluster_serving.client.fetch import request_lost, result_timeout_async
from cluster_serving.client.positions import Position
from cluster_serving.client.sending import trace
from cluster_serving.protocol.columns import named
from cluster_serving.protocol.compat import timeout as time_limit
from cluster_serving.protocol.entry import RESULT, request_fields
from cluster_serving.protocol.errors import RequestCancelled, RequestLost, ServingError
from cluster_serving.protocol.keys import NORMAL, JobKeys, to_bytes
from cluster_serving.protocol.payloads import files as payload_files
from cluster_serving.protocol.payloads.base import PayloadFolder
from cluster_serving.protocol.payloads.files import PayloadFolders
from cluster_serving.protocol.redis.connection import RetryBudget, is_lost_connection, translated
from cluster_serving.protocol.redis.reconnecting import persistent
from cluster_serving.protocol.results import Fields
from cluster_serving.protocol.scripts import HAS_ENTRY, Call, call_all, call_async, fetch_call, fields_of, run_async
from cluster_serving.protocol.tensors import Inputs

_DELETE_PAUSE = 0.01
_WATCH_INTERVAL = 2.0
_MAX_AT_ONCE = 256
_MAX_BYTES = 1 << 20  # Redis serves no other client while it reads them.


@dataclass(eq=False)
class Pending:
    """A request that waits for its result.

    Attributes:
        result: Set once the result is there; for a submitted request, once the request is queued.
        kept: True if the result stays in Redis.
        key: Key of the result.
        fields: Fields of the stream entry.
        folder: Folder with the inputs, if they are in a file.
        sent: Time at which the request was sent.
        entry_id: Id of the stream entry, once the request is queued.
        waiters: Number of coroutines that wait for a kept result.
        expired: True if the result was cancelled because it did not come in time.
        closed: True if it failed because the dispatcher was closed.
        span: Span of sending the request, if its trace is sampled.
    """

    job: str
    uri: str
    result: asyncio.Future[Fields]
    priority: str = NORMAL
    kept: bool = False
    key: str = field(init=False)
    fields: Mapping[str, str | bytes] = field(default_factory=dict)
    folder: PayloadFolder | None = None
    sent: float = 0.0
    entry_id: bytes | None = None
    waiters: int = 0
    expired: bool = False
    closed: bool = False
    span: trace.Sending | None = None

    def __post_init__(self) -> None:
        self.key = JobKeys(self.job).native_result(self.uri)

    def compose(self, inputs: Inputs, reply_to: str, **options: Any) -> None:
        """Set the fields; `options` are further arguments of `protocol.entry.request_fields`."""
        store = partial(payload_files.write, self.folder) if self.folder else None
        if (span := trace.begin(self.job)) is not None:
            self.span, options["traceparent"] = span, span.traceparent
        self.fields = request_fields(self.uri, inputs, reply_to, store=store, **options)

    def end_span(self, error: str = "") -> None:
        """End the span of sending the request, which may be sent again."""
        if self.span is not None:
            self.span.end(error)
            self.span = None

    def expire(self) -> None:
        """Cancel the result, unless it is there."""
        if not self.result.done():
            self.expired = True
            self.result.cancel()


class Dispatcher:
    """Sends requests to any jobs of one Redis and receives their results; used by one event loop.

    Args:
        db: Client from `protocol.redis.connection.connect_async`; closed together with the dispatcher.
        name: Part of the reply channel's name, which Redis permissions may refer to.
        window: Seconds for which requests are gathered before they are sent; 0 sends them at once.
        window_count: Number of gathered requests that are sent before the window ends.
        observe: Gets durations in seconds: `put` of sending requests, `get` of fetching results, or of reading those
            that come with their announcement, and `wait` from sending a request to its result.
        channels: Further channels on which results are announced.
        retry_budget: Most seconds without Redis for which requests wait, within their timeouts; further ones then
            fail at once. Unless it is 0, requests that Redis has lost are sent again.
    """

    def __init__(
        self,
        db: redis.asyncio.Redis,
        name: str = "exchange",
        window: float = 0.0,
        window_count: int = 1,
        observe: Callable[[str, float], None] = lambda name, seconds: None,
        channels: Sequence[str] = (),
        retry_budget: float = 0.0,
    ) -> None:
        self.db = db
        self._sending, self._fetching = DedicatedAsyncConnection(db), DedicatedAsyncConnection(db)
        self._reply_channel = new_channel(name)
        self._channels = (self._reply_channel, *channels)
        self._channel_keys = tuple(map(to_bytes, self._channels))
        self._folders = PayloadFolders()
        self._subscription = AsyncSubscription(db)
        self._window = window
        self._window_count = window_count
        self._window_full = asyncio.Event()
        self._observe = observe
        self._retry_budget = RetryBudget(retry_budget)
        self._reached = False
        # A random name for each request would cost as much as reading one.
        self._prefix, self._numbers = f"{uuid.uuid4().hex}-", itertools.count()
        self._pending: dict[bytes, Pending] = {}
        self._to_send: dict[bytes, Pending] = {}
        self._to_fetch: dict[bytes, None] = {}
        self._to_delete: list[str] = []
        self._to_withdraw: list[Call] = []
        self._sender: asyncio.Task[None] | None = None
        self._fetcher: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._due = asyncio.Event()
        self._closing = False
        self._times_closed = 0

    @property
    def waiting(self) -> int:
        """Number of requests without a result."""
        return len(self._pending)

    async def request(
        self,
        job: str,
        inputs: Inputs,
        timeout: float,
        priority: str = NORMAL,
        version: str | int | None = None,
        origin: str = "",
        records: int = 0,
        request_id: str = "",
        counted: str = "",
    ) -> Fields:
        """Queue a request, wait for its result and delete it from Redis.

        If the coroutine is cancelled or times out, the request is withdrawn, in the background. The timeout, in
        seconds, is also the request's deadline. `protocol.entry.Entry` explains `origin`, `records` and
        `counted`. The uri ends with the `request_id`, which logs then have.
        `client.sending.convert.to_inputs` makes the inputs, and `client.result.read_result` reads the result. The
        errors are those of `client.queues.InputQueue.predict`.
        """
        options = _waiting(timeout, priority, version)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        uri = f"{self._prefix}{next(self._numbers):x}"
        pending = Pending(job, f"{uri}/{request_id}" if request_id else uri, loop.create_future(), priority)
        name = pending.uri.encode()
        timer: asyncio.TimerHandle | None = None
        try:
            if not self._subscription.is_confirmed(self._channel_keys) or payload_files.is_large(inputs):
                closed = self._times_closed
                await self._prepare(pending, inputs, timeout)
                if self._times_closed != closed:
                    raise _closed()
            pending.compose(
                inputs,
                self._reply_channel,
                deadline_ms=options.deadline_ms,
                reply_with=RESULT,
                version=options.version_text,
                origin=origin,
                records=records,
                counted=counted,
            )
            # A timer costs a third of a block with a time limit.
            timer = loop.call_at(deadline, pending.expire)
            while True:
                self._pending[name] = pending
                self._queue(name, pending)
                if self._watcher is None or self._watcher.done():
                    self._watcher = asyncio.create_task(self._watch())
                try:
                    return named(await pending.result, pending.uri)
                except RequestLost:
                    if not self._retry_left:
                        raise
                    left = deadline - loop.time()
                    if left <= 0:
                        raise asyncio.TimeoutError from None
                    pending.result = loop.create_future()
                    pending.fields = {**pending.fields, "deadline": str(RequestOptions.waiting(left).deadline_ms)}
        except (asyncio.TimeoutError, asyncio.CancelledError) as ended:
            if isinstance(ended, asyncio.CancelledError) and not pending.expired:
                raise
            raise await result_timeout_async(self.db, job, timeout, pending.uri, chosen=False) from None
        except ServingError as error:
            error.uri = pending.uri
            raise
        finally:
            if timer is not None:
                timer.cancel()
            self._pending.pop(name, None)
            if self._to_send.pop(name, None) and pending.folder:
                pending.folder.discard(pending.fields)
            if pending.entry_id is not None and not (pending.result.done() and not pending.result.cancelled()):
                self._withdraw(pending)

    async def close(self) -> None:
        """Close the connections, once the requests that wait, which fail, and cancelled ones are withdrawn."""
        self._closing = True
        self._times_closed += 1
        for name, pending in self._pending.items():
            if pending.kept or pending.result.done():
                continue
            pending.closed = True
            pending.result.set_exception(_closed())
            if self._to_send.pop(name, None) and pending.folder:
                pending.folder.discard(pending.fields)
            if pending.entry_id is not None:
                self._withdraw(pending)
        self._due.set()
        await self._subscription.close()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._sender is not None:
            await self._sender
        if self._fetcher is not None:
            await self._fetcher
        for connection in (self._sending, self._fetching):
            await connection.close()
        await self.db.aclose()
        self._closing = False

    @property
    def _retry_left(self) -> float:
        """Seconds for which a lost connection is waited out; one to a Redis that was never reached is not."""
        return self._retry_budget.left if self._reached and not self._closing else 0.0

    @contextmanager
    def using_redis(self) -> Iterator[None]:
        """Wait out a lost connection of `db`, as requests do, and translate errors of Redis."""
        with persistent(self._retry_left), self._retry_budget.watching(), translated(self.db):
            yield
        self._reached = True

    async def _subscribe(self) -> None:
        for channel in self._channels:
            await self._subscription.subscribe(channel, self._handle)

    async def _prepare(self, pending: Pending, inputs: Inputs, timeout: float) -> None:
        """Subscribe to the channels, and find the folder for large inputs; raise `asyncio.TimeoutError` in time."""
        async with time_limit(timeout):
            with persistent(min(timeout, self._retry_left)), self._retry_budget.watching():
                await self._subscribe()
                await self._find_folder(pending, inputs)

    async def _find_folder(self, pending: Pending, inputs: Inputs) -> None:
        with translated(self.db):
            pending.folder = await run_async(self.db, self._folders.find(pending.job, inputs))

    def _queue(self, name: bytes, pending: Pending) -> None:
        self._to_send[name] = pending
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())
        elif len(self._to_send) >= self._window_count:
            self._window_full.set()

    async def _send(self) -> None:
        while self._to_send:
            if self._window and len(self._to_send) < self._window_count:
                await _next(self._window_full, self._window)
            started = time.perf_counter()
            batch = self._next_batch(started)
            try:
                with self._retry_budget.watching(waits=False), translated(self.db):
                    replies = await self._add(batch)
                self._reached = True
            except ServingError as unsent:
                if self._retry_left and is_lost_connection(unsent):
                    self._to_send.update((p.uri.encode(), p) for p in batch if not p.result.done())
                    await asyncio.sleep(RECONNECT_PAUSE)
                    continue
                replies = [(pending, unsent) for pending in batch]
            self._observe("put", time.perf_counter() - started)
            for pending, reply in replies:
                if isinstance(reply, bytes):
                    pending.entry_id = reply
                    pending.end_span()
                    if pending.result.cancelled() or pending.closed:
                        self._withdraw(pending)
                    elif pending.kept:
                        pending.result.set_result({})
                else:
                    error = refusal(self.db, pending.job, reply)
                    pending.end_span(error.code)
                    self._folders.clean_up(pending.job, pending.folder, pending.fields, error)
                    if not pending.result.done():
                        pending.result.set_exception(error)

    def _next_batch(self, now: float) -> list[Pending]:
        batch: list[Pending] = []
        size = 0
        while self._to_send and len(batch) < _MAX_AT_ONCE and size < _MAX_BYTES:
            pending = self._to_send.pop(next(iter(self._to_send)))
            size += len(pending.fields.get("data", ""))
            pending.sent = now
            batch.append(pending)
        return batch

    async def _add(self, batch: Sequence[Pending]) -> list[tuple[Pending, Any]]:
        """Queue requests, those of a job in one call; return each with its reply to `client.enqueue.add_call`."""
        groups: dict[str, list[Pending]] = {}
        for pending in batch:
            groups.setdefault(pending.job, []).append(pending)
        calls = [add_call(job, [(p.fields, p.priority) for p in group]) for job, group in groups.items()]
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
            for group, reply in zip(groups.values(), replies)
            for pair in zip(group, [reply] * len(group) if isinstance(reply, Exception) else reply)
        ]

    def _withdraw(self, pending: Pending) -> None:
        """Remove an abandoned request from the stream, unless it is being computed."""
        position = Position(JobKeys(pending.job).stream(pending.priority), pending.entry_id or b"")
        self._to_withdraw.append(withdraw_call(pending.job, pending.uri, position))
        self._look({})

    async def _fetch(self) -> None:
        """Fetch announced results. Delete results that have arrived, unless requests are soon sent along with that."""
        while self._has_errands():
            if not (self._to_fetch or self._to_withdraw or self._closing):
                await _next(self._due, _DELETE_PAUSE)
                if not self._has_errands():
                    return
            names = list(islice(self._to_fetch, _MAX_AT_ONCE))
            waiting = [(name, self._pending[name]) for name in names if name in self._pending]
            for name in names:
                del self._to_fetch[name]
            deleted, self._to_delete = self._to_delete, []
            withdrawn, self._to_withdraw = self._to_withdraw, []
            started = time.perf_counter()
            try:
                fetch = fetch_call([pending.key for _, pending in waiting], deleted)
                replies, *withdrawals = await self._fetching.call_all([fetch, *withdrawn])
                if isinstance(replies, RedisError):
                    raise replies
                for withdrawal in withdrawals:
                    discard_file(withdrawal)
            except (RedisError, OSError):
                if self._closing:
                    # Requests that were not withdrawn have a deadline, and results that were not deleted expire.
                    return
                # Results are announced only once.
                self._to_fetch.update((name, None) for name, _ in waiting)
                self._to_delete += deleted
                self._to_withdraw += withdrawn
                await asyncio.sleep(RECONNECT_PAUSE)
                continue
            now = time.perf_counter()
            if waiting:
                self._observe("get", now - started)
            for (_, pending), reply in zip(waiting, replies):
                if reply and not isinstance(reply, RedisError):
                    self._resolve(pending, fields_of(reply), now)

    async def _watch(self) -> None:
        """Fail the requests that have gone from Redis without a result; end when no request waits."""
        while self._pending:
            await asyncio.sleep(_WATCH_INTERVAL)
            before = time.perf_counter() - _WATCH_INTERVAL
            streams: dict[str, list[Pending]] = {}
            for pending in self._pending.values():
                if pending.entry_id is not None and not pending.kept and pending.sent < before:
                    streams.setdefault(JobKeys(pending.job).stream(pending.priority), []).append(pending)
            for stream, waiting in streams.items():
                # Redis may be away; the next look finds the same.
                with suppress(RedisError, OSError):
                    # Redis loses all requests together, or, in a failover, the latest.
                    if await self._fail_lost(stream, [waiting[0], waiting[-1]]):
                        await self._fail_lost(stream, waiting)

    async def _fail_lost(self, stream: str, waiting: Sequence[Pending]) -> bool:
        """Fail the requests that have neither entry nor result; return True if there are such requests."""
        lost = False
        for start in range(0, len(waiting), _MAX_AT_ONCE):
            # One that is sent again meanwhile has another entry.
            part = [(pending, pending.entry_id) for pending in waiting[start : start + _MAX_AT_ONCE]]
            calls = [Call(HAS_ENTRY, [stream], [entry_id or b""]) for _, entry_id in part]
            gone = [sent for sent, reply in zip(part, await call_all(self.db, calls)) if reply == 0]
            if not gone:
                continue
            # An answer may have come in between.
            results = await call_async(self.db, fetch_call([pending.key for pending, _ in gone]))
            for (pending, entry_id), reply in zip(gone, results):
                if reply and not isinstance(reply, RedisError):
                    self._resolve(pending, fields_of(reply), time.perf_counter())
                elif not reply and not pending.result.done() and pending.entry_id == entry_id:
                    pending.result.set_exception(request_lost(pending.job))
                    pending.entry_id = None
                    lost = True
        return lost

    def _handle(self, message: bytes | None) -> None:
        """Take the results in a message, and fetch those that it only announces; without a message fetch all."""
        if message is None:
            self._look(self._pending)
            return
        announced = []
        arrived = False
        now = time.perf_counter()
        for name, fields in replies_in(message).items():
            pending = self._pending.get(name)
            if pending is None:
                continue
            if fields:
                self._to_fetch.pop(name, None)
                self._resolve(pending, fields, now)
                arrived = True
            else:
                announced.append(name)
        if arrived:
            self._observe("get", time.perf_counter() - now)
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


def _closed() -> RequestCancelled:
    return RequestCancelled("the client was closed before the answer came")


# Most requests of a process have equal options.
_waiting = lru_cache(maxsize=256)(RequestOptions.waiting)


async def _next(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set anew, or for so many seconds."""
    event.clear()
    with suppress(asyncio.TimeoutError):
        async with time_limit(seconds):
            await event.wait()
