"""The synchronous client: `InputQueue` queues requests, `OutputQueue` reads results.

Constructor arguments and methods are those of the original's client, without its HTTP mode (`frontend_url`, `sync`).
In addition, clients can wait for results, dtypes are kept, and a uri may hold any character. Errors are exceptions
(`client.errors`) instead of the strings "[]" and "NaN". Reading all results scans Redis instead of blocking it.
"""

from __future__ import annotations

import math
import os
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, overload
from weakref import WeakSet

from redis.exceptions import RedisError

from cluster_serving.client.cancel import cancel
from cluster_serving.client.convert import inputs_of
from cluster_serving.client.dispatcher import Dispatcher
from cluster_serving.client.enqueue import RequestOptions, enqueue, split
from cluster_serving.client.fetch import fetch, fetch_queued, fetch_recent
from cluster_serving.client.many import TIMEOUT, Batch, check, results_in_thread
from cluster_serving.client.pieces import PIECE_TIMEOUT, PieceIteration, PieceOrRestart, Pieces
from cluster_serving.client.positions import Position, RecentEntries, recent_entries
from cluster_serving.client.result import Result, read_outcome, read_result
from cluster_serving.client.subscription import Subscription
from cluster_serving.client.texts import TextInputs, converted
from cluster_serving.protocol.columns import named
from cluster_serving.protocol.connection import Client, connect, connect_async, persistent, result_timeout, translated
from cluster_serving.protocol.dedicated import DedicatedConnection
from cluster_serving.protocol.entry import PIECES, RESULT
from cluster_serving.protocol.errors import InvalidInput, RedisUnavailable, RequestLost
from cluster_serving.protocol.inputs import Input
from cluster_serving.protocol.keys import DEFAULT_JOB, NORMAL, JobKeys
from cluster_serving.protocol.payload_files import PayloadFolders
from cluster_serving.protocol.pieces import BEGINNING, Piece
from cluster_serving.protocol.results import Fields
from cluster_serving.protocol.scripts import run

if TYPE_CHECKING:
    from typing_extensions import Self

SCAN_COUNT = 500
"""Number of keys that Redis scans, or deletes, in one command."""


RECONNECT_SECONDS = 10.0
"""Seconds for which calls without a timeout wait out a lost connection."""


_Opened = TypeVar("_Opened", Subscription, DedicatedConnection)


class Reconnecting:
    """Base of all queues: waits out lost connections.

    Args:
        db: Client of Redis.
        name: The job's `jobName`.
        reconnect: See `OutputQueue`.
    """

    def __init__(self, db: Client, name: str, reconnect: float) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"name is {name!r}; expected the jobName of a job")
        if not isinstance(reconnect, (int, float)) or not reconnect >= 0:
            raise InvalidInput(f"reconnect is {reconnect!r}; expected seconds, 0 or more")
        self.name = name
        self._client = db
        self._reconnect = reconnect
        self._reached = False

    @property
    def _retry_budget(self) -> float:
        """`retry_budget` of a `Dispatcher`, whose requests have timeouts of their own."""
        return math.inf if self._reconnect else 0.0

    @contextmanager
    def _using_redis(self, timeout: float | None = None) -> Iterator[None]:
        """Wait out a lost connection, for the timeout if there is one, and translate errors of Redis.

        A Redis that was never reached may have another address, so its error is raised soon.
        """
        seconds = self._reconnect if timeout is None else timeout
        with translated(self._client), persistent(seconds if self._reached and self._reconnect else 0.0):
            yield
        self._reached = True


class _Queue(Reconnecting):
    """Base of both queues: the job's name and a thread-safe client of its Redis."""

    def __init__(
        self,
        host: str | None = None,
        port: int | str | None = None,
        name: str = DEFAULT_JOB,
        *,
        url: str | None = None,
        reconnect: float = RECONNECT_SECONDS,
        **redis_options: Any,
    ) -> None:
        self.host = host or "localhost"
        self.port = str(port or 6379)
        self._address = {"host": self.host, "port": self.port, "url": url, "job": name, **redis_options}
        self.db = connect(**self._address)
        super().__init__(self.db, name, reconnect)
        self._own_connections()
        self._recent = recent_entries(self.db, name)
        self._texts = TextInputs()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # In another process it makes connections of its own.
        return _remade, (type(self), {**self._address, "reconnect": self._reconnect})

    def _own_connections(self) -> None:
        """Begin without connections: those of another process cannot be used."""
        self._process = os.getpid()
        self._threads = threading.local()
        self._opened: WeakSet[Subscription | DedicatedConnection] = WeakSet()
        self._opening = threading.Lock()

    def close(self) -> None:
        """Close the connections, those of other threads too; later calls open new ones.

        No other thread may be in a call.
        """
        with self._opening:
            opened = list(self._opened)
        for each in opened:
            each.close()
        self.db.close()

    @property
    def _subscription(self) -> Subscription:
        # A subscription connection cannot be shared, so each thread that waits has its own; after a fork, each process.
        if self._process != os.getpid():
            self._own_connections()
        if not hasattr(self._threads, "subscription"):
            self._threads.subscription = self._noted(Subscription(self.db, self.name))
        subscription: Subscription = self._threads.subscription
        return subscription

    @property
    def _connection(self) -> DedicatedConnection:
        if not hasattr(self._threads, "connection"):
            self._threads.connection = self._noted(DedicatedConnection(self.db))
        connection: DedicatedConnection = self._threads.connection
        return connection

    def _noted(self, opened: _Opened) -> _Opened:
        with self._opening:
            self._opened.add(opened)
        return opened


def _remade(kind: type[_Queue], address: dict[str, Any]) -> _Queue:
    """Return a queue that was pickled."""
    address = dict(address)
    return kind(address.pop("host"), address.pop("port"), address.pop("job"), **address)


class OutputQueue(_Queue):
    """Reads the results of one job.

    Args:
        host: Redis host, default `localhost`.
        port: Redis port, default 6379.
        name: The job's `jobName`, default `serving_stream`.
        url: Instead of host and port: `redis://[user:password@]host:port/db`, `rediss://` for TLS, or one of
            Sentinels or of a cluster (`protocol.failover.FailoverUrl`).
        reconnect: Seconds for which a call without a timeout waits out a lost connection; a call with a timeout waits
            that long. 0 raises the error of a lost connection soon, in all calls.
        redis_options: Further arguments of `redis.Redis`, such as `password` or `ssl_ca_certs`.
    """

    def query(self, uri: str, delete: bool = False, timeout: float | None = None) -> Result | None:
        """Return the result of a request.

        Args:
            uri: Uri of the request.
            delete: Also delete the result from Redis; otherwise it stays until `resultTtl` is over.
            timeout: Seconds to wait for the result. None does not wait.

        Returns:
            The result; None if there is none and no timeout was given.

        Raises:
            ResultTimeout: If no result came in time.
            RequestLost: If there is a timeout, and a request of this process has gone from Redis without a result.
                Requests of other processes, and all but the latest 10,000 of this one, end in `ResultTimeout`.
            ServingError: If the request failed; class and message give the reason.
            InvalidInput: If the uri is no str, or the timeout no number.
            RedisUnavailable: If Redis cannot be reached.
        """
        check_query(uri, timeout)
        with self._using_redis(timeout):
            fields = run(self.db, fetch(self.name, uri, delete))
        if fields is None and timeout is not None:
            with self._using_redis(timeout):
                fields = self._wait(uri, delete, timeout)
        if fields is None:
            if timeout is None:
                return None
            raise result_timeout(self.db, self.name, timeout, uri)
        self._recent.forget(uri)
        return read_result(fields)

    def query_and_delete(self, uri: str, timeout: float | None = None) -> Result | None:
        """Return the result of a request as `query` does, and delete the result from Redis."""
        return self.query(uri, delete=True, timeout=timeout)

    def dequeue(self) -> dict[str, Result]:
        """Return all results in Redis and delete them.

        Returns:
            uri → result. The result of a request that failed has the error as `error`.

        Raises:
            RedisUnavailable: If Redis cannot be reached.
        """
        results: dict[bytes, Fields] = {}
        with self._using_redis():
            scan: Any = self.db.scan_iter(match=JobKeys(self.name).result_pattern, count=SCAN_COUNT, _type="HASH")
            for keys in batched([key for key in scan if JobKeys(self.name).uri_of(key) is not None], SCAN_COUNT):
                with self.db.pipeline(transaction=False) as pipeline:
                    for key in keys:
                        pipeline.hgetall(key)  # type: ignore[arg-type]
                    replies = pipeline.execute()
                results.update((key, fields) for key, fields in zip(keys, replies) if fields)
        # Deleted last, so that a lost reply loses no results. Results that are not deleted expire.
        with suppress(RedisError):
            for keys in batched(results, SCAN_COUNT):
                self.db.delete(*keys)
        return results_of(self.name, results, self._recent)

    def _wait(self, uri: str, delete: bool, timeout: float) -> Fields | None:
        channel = JobKeys(self.name).result(uri)
        end = time.monotonic() + timeout
        self._subscription.subscribe(channel)
        try:
            # The result may have come between the first look and the subscription.
            fields = self._fetch_queued(uri, delete)
            for until in looks(self._recent.find(uri), end):
                fields = fields or self._subscription.wait(
                    channel, uri, lambda _: self._fetch_queued(uri, delete), until - time.monotonic()
                )
            return fields
        finally:
            self._subscription.unsubscribe(channel)

    def _fetch_queued(self, uri: str, delete: bool) -> Fields | None:
        return run(self.db, fetch_recent(self.name, uri, self._recent, delete))


class InputQueue(_Queue):
    """Queues requests for one job; see `OutputQueue` for arguments."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._folders = PayloadFolders()

    @overload
    def enqueue(
        self,
        uri: str,
        inputs: object,
        /,
        *,
        deadline: float | None = None,
        priority: str | None = None,
        block: bool | None = None,
        timeout: float | None = None,
        version: str | int | None = None,
    ) -> str: ...

    @overload
    def enqueue(self, uri: str, /, **data: object) -> str: ...

    def enqueue(self, uri: str, inputs: object = None, /, **data: object) -> str:
        """Queue a request and return at once.

        Args:
            uri: Name of the request and its result; an earlier result of the same name is removed.
            inputs: The model's inputs, as `predict` takes them.
            data: Options; and without `inputs` the model's inputs by name (`client.enqueue.split` tells them apart).
                The options are `deadline`, the seconds that the request may wait before it is computed, after which it
                is answered with `DeadlineExceeded`; `priority`, which is `high`, `normal` or `low`; `block=True` and
                `timeout`, to wait so many seconds for room in a full queue (without `timeout`, without limit); and
                `version`, the number of the version of the model that is to answer.

        Returns:
            The uri.

        Raises:
            InvalidInput: If the uri or an input cannot be sent, or an option is misspelt; nothing was queued.
            QueueFull: If the queue is full, or Redis has reached its memory limit; nothing was queued.
            RedisUnavailable: If Redis cannot be reached.
        """
        options, values = split(inputs, data)
        with self._using_redis(options.timeout):
            queued = enqueue(self.name, uri, self._inputs(values), options, self._folders)
            self._recent.remember(uri, run(self.db, queued), options.deadline)
        return uri

    def _inputs(self, values: Mapping[str, object], timeout: float | None = None) -> dict[str, Input]:
        """Convert inputs; the slots tell whether a plain text is one, or the path of an image."""
        # Without a command nothing tells that Redis was reached.
        with self._using_redis(timeout) if self._texts.needs(values) else nullcontext():
            return run(self.db, converted(self.name, self._texts, values))

    def cancel(self, uri: str) -> bool:
        """Withdraw a request that is not being computed yet; its result is `RequestCancelled`.

        The positions of the latest requests of this queue are known; for other requests the stream is searched.

        Args:
            uri: Uri of the request.

        Returns:
            True if the request was withdrawn; False if it is being computed, is answered, or is unknown.

        Raises:
            InvalidInput: If the uri is no str.
            RedisUnavailable: If Redis cannot be reached.
        """
        check_query(uri)
        with self._using_redis():
            return run(self.db, cancel(self.name, uri, self._recent.find(uri)))

    def predict(
        self, request_data: object, timeout: float = 5, *, priority: str = NORMAL, version: str | int | None = None
    ) -> Result:
        """Queue a request, wait for its result and delete it from Redis.

        Args:
            request_data: A dict of inputs by name (`client.convert.to_input` lists the types); or JSON text
                `{"instances": [{name: numbers}]}`, of which the first instance is used, and may lack the name; or one
                input, which is sent under the name `t`.
            priority: `high`, `normal` or `low`.
            timeout: Seconds to wait; also the request's deadline, so that no abandoned request is computed.
            version: Number of the version of the model that is to answer; None for the one that is served.

        Returns:
            See `OutputQueue.query`.

        Raises:
            ResultTimeout: If no result came in time.
            DeadlineExceeded: If no result came in time, and the job has dropped the request.
            RequestLost: If the request has gone from Redis without a result, and `reconnect` is 0. Otherwise `predict`
                sends it again.
            VersionNotFound: If the version is not served; the message names those that are.
            ServingError: If the request failed, or could not be queued; see `enqueue`.
        """
        options = RequestOptions.waiting(timeout, priority, version)
        deadline = time.monotonic() + timeout
        uri = uuid.uuid4().hex
        inputs = self._inputs(inputs_of(request_data), timeout)
        if not self._reached:
            with self._using_redis():
                self._subscription.subscribe(self._subscription.reply_channel)
        while True:
            with self._using_redis(deadline - time.monotonic()):
                try:
                    fields = self._exchange(uri, inputs, options, deadline)
                    break
                except RequestLost:
                    left = deadline - time.monotonic()
                    if left <= 0 or not self._reconnect:
                        raise
            options = RequestOptions.waiting(left, priority, version)
        if fields is None:
            raise result_timeout(self.db, self.name, timeout, uri, chosen=False)
        return read_result(named(fields, uri))

    def _exchange(
        self, uri: str, inputs: Mapping[str, Input], options: RequestOptions, deadline: float
    ) -> Fields | None:
        """Queue a request and wait for its result until the deadline."""
        connection, channel = self._connection, self._subscription.reply_channel
        self._subscription.subscribe(channel)
        position = run(connection, enqueue(self.name, uri, inputs, options, self._folders, channel, RESULT))

        def take(announced: Fields) -> Fields | None:
            if not announced:
                return run(connection, fetch_queued(self.name, uri, position, delete=True))
            # A result that is not deleted expires.
            connection.post("UNLINK", JobKeys(self.name).native_result(uri))
            return announced

        return self._subscription.wait(channel, uri, take, deadline - time.monotonic())

    def predict_many(
        self,
        items: Iterable[object],
        in_flight: int | None = None,
        timeout: float = TIMEOUT,
        *,
        priority: str = NORMAL,
        raise_errors: bool = False,
        version: str | int | None = None,
    ) -> Iterator[Result]:
        """Yield the result of each item, in order.

        Items are taken as results are, so any number of them needs little memory, and `tqdm(queue.predict_many(items))`
        shows the progress. Requests without a result are withdrawn when the iterator is closed.

        Args:
            items: Requests in any form that `predict` takes.
            in_flight: Number of requests that wait for a result, or for their turn to be yielded; by default two
                batches for each slot of the job, and one more, so that requests of others need not wait for more.
            timeout: Seconds in which each result has to come; they may pass while a full queue has no room.
            priority: `high`, `normal` or `low`.
            raise_errors: True to raise the first error. False yields a result with that `error`, and goes on.
            version: Number of the version of the model that is to answer; None for the one that is served.

        Raises:
            InvalidInput: If an option has an invalid value.
        """

        def make() -> Batch:
            dispatcher = Dispatcher(connect_async(**self._address), self.name, retry_budget=self._retry_budget)
            return Batch(dispatcher, self.name, in_flight, timeout, priority, raise_errors, version)

        check(in_flight, timeout, priority, version)
        return results_in_thread(make, items)

    def stream(
        self,
        request_data: object,
        timeout: float = PIECE_TIMEOUT,
        *,
        uri: str | None = None,
        priority: str = NORMAL,
        version: str | int | None = None,
    ) -> Pieces:
        """Queue a request, and return an iterator over the pieces of its answer, each as soon as it is made.

        A handler whose `predict` is a generator makes pieces; the answer of any other model is one piece. Instead of a
        piece, the iterator yields `Restarted` where the answer begins anew. If the loop is left before the end, the
        request is stopped.

        Args:
            request_data: The inputs, as for `predict`.
            timeout: Seconds to wait for each piece; for the first one they include the time in the queue.
            uri: Name of the request, for `resume`; random by default.
            priority: `high`, `normal` or `low`.
            version: Number of the version of the model that is to answer; None for the one that is served.

        Raises:
            ResultTimeout: If a piece did not come in time, from the iterator; the request is stopped then.
            ServingError: If the request could not be queued (see `enqueue`); or, from the iterator, if it failed.
        """
        options = RequestOptions.waiting(timeout, priority, version)
        answer = PieceIteration(self.name, uuid.uuid4().hex if uri is None else uri)
        inputs = self._inputs(inputs_of(request_data), timeout)
        channel = JobKeys(self.name).pieces(answer.uri)
        with self._using_redis(timeout):
            is_new = self._subscription.subscribe(channel)
            queued = enqueue(self.name, answer.uri, inputs, options, self._folders, reply_with=PIECES)
            try:
                answer.position = run(self.db, queued)
            except BaseException:
                # An iterator over an earlier request of the uri may have the channel.
                if is_new:
                    with suppress(RedisError):
                        self._subscription.unsubscribe(channel)
                raise
        self._recent.remember(answer.uri, answer.position)
        return self._begun(answer, timeout)

    def resume(self, uri: str, after: str = BEGINNING, timeout: float = PIECE_TIMEOUT) -> Pieces:
        """Return an iterator over the pieces of a request that `stream` has queued, also in another process.

        Args:
            uri: Name of the request.
            after: `last_id` of the iterator that got the pieces before; by default there are none.
            timeout: As for `stream`. An unknown request ends in `ResultTimeout`.
        """
        answer = PieceIteration(self.name, uri, after)
        answer.position = self._recent.find(uri)
        with self._using_redis(timeout):
            self._subscription.subscribe(JobKeys(self.name).pieces(uri))
        return self._begun(answer, timeout)

    def _begun(self, answer: PieceIteration, timeout: float) -> Pieces:
        pieces = self._pieces(answer, timeout)
        # A generator that has not begun is closed without its clean-up.
        next(pieces)
        return Pieces(answer, pieces)

    def _pieces(self, answer: PieceIteration, timeout: float) -> Iterator[PieceOrRestart | None]:
        """Yield None, and then the pieces."""
        channel = JobKeys(self.name).pieces(answer.uri)

        def read(_: Fields) -> list[Piece] | None:
            return run(self.db, answer.read()) or None

        try:
            yield None
            while not answer.ended:
                with self._using_redis(timeout):
                    pieces = read({}) or self._subscription.wait(channel, answer.uri, read, timeout)
                if pieces is None:
                    raise result_timeout(self.db, self.name, timeout, answer.uri)
                yield from answer.take(pieces)
        except RedisUnavailable:
            # `resume` can go on.
            raise
        except BaseException:
            run(self.db, answer.leave())
            raise
        else:
            run(self.db, answer.leave())
        finally:
            self._recent.forget(answer.uri)
            with suppress(RedisError):
                self._subscription.unsubscribe(channel)


def looks(position: Position | None, end: float) -> list[float]:
    """Return the times until which a query waits for messages: when the deadline passes, and the end."""
    return [position.expires, end] if position is not None and position.expires < end else [end]


def check_query(uri: object, timeout: float | None = None) -> None:
    """Check the arguments of `query` and `cancel`.

    Raises:
        InvalidInput: If the uri is no str, or the timeout neither None nor a number.
    """
    if not isinstance(uri, str):
        raise InvalidInput(f"uri is {str(uri)[:64]!r} ({type(uri).__name__}); expected a str")
    if timeout is not None:
        RequestOptions.waiting(timeout)


def batched(keys: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield the keys in lists of at most `size`."""
    remaining = iter(keys)
    while batch := list(islice(remaining, size)):
        yield batch


def results_of(job: str, hashes: Mapping[bytes, Fields], recent: RecentEntries) -> dict[str, Result]:
    """Read result hashes, given by key. Return results by uri, whose requests are forgotten."""
    keys = JobKeys(job)
    results = {keys.uri_of(key) or "": read_outcome(fields) for key, fields in hashes.items()}
    for uri in results:
        recent.forget(uri)
    return results
