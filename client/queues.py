"""The synchronous client: `InputQueue` queues requests, `OutputQueue` reads results.

Constructor arguments and methods are those of the original's client, without its HTTP mode (`frontend_url`, `sync`).
In addition, clients can wait for results, dtypes are kept, and a uri may hold any character. Errors are exceptions
(`client.errors`) instead of the strings "[]" and "NaN". Reading all results scans Redis instead of blocking it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, overload

from redis.exceptions import RedisError

from cluster_serving.client.abilities import (
    PIECE_TIMEOUT,
    TIMEOUT,
    Batch,
    Dispatcher,
    Outlet,
    PieceIteration,
    Pieces,
    TextInputs,
    check,
    converted,
    inputs_of,
    results_in_thread,
)
from cluster_serving.client.cancel import cancel
from cluster_serving.client.connected import Queue
from cluster_serving.client.enqueue import RequestOptions, enqueue, split
from cluster_serving.client.fetch import (
    SCAN_COUNT,
    batched,
    fetch,
    fetch_queued,
    fetch_recent,
    result_timeout,
    results_of,
    stored,
)
from cluster_serving.client.positions import Position
from cluster_serving.client.result import Result, read_result
from cluster_serving.protocol.columns import named
from cluster_serving.protocol.entry import PIECES, RESULT
from cluster_serving.protocol.errors import InvalidInput, RequestLost
from cluster_serving.protocol.inputs import Input
from cluster_serving.protocol.keys import NORMAL, JobKeys
from cluster_serving.protocol.pieces import BEGINNING
from cluster_serving.protocol.redis.connection import connect_async
from cluster_serving.protocol.results import Fields
from cluster_serving.protocol.scripts import run


class OutputQueue(Queue):
    """Reads the results of one job.

    Args:
        host: Redis host, default `localhost`.
        port: Redis port, default 6379.
        name: The job's `jobName`, default `serving_stream`.
        url: Instead of host and port: `redis://[user:password@]host:port/db`, `rediss://` for TLS, or one of
            Sentinels or of a cluster (`protocol.redis.failover.FailoverUrl`).
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
            InvalidInput: If the uri is no str, or the timeout no number of 0 or more.
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
        with self._using_redis():
            results = stored(self.db, self.name)
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


class InputQueue(Queue):
    """Queues requests for one job; see `OutputQueue` for arguments."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._outlet, self._texts = Outlet(), TextInputs()

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
            queued = enqueue(self.name, uri, self._inputs(values), options, self._outlet)
            self._recent.remember(uri, run(self.db, queued), options.deadline)
        return uri

    def _inputs(self, value: object, timeout: float | None = None) -> dict[str, Input]:
        """Convert the value of a request; the slots tell whether a plain text is an input, or the path of an image."""
        values = inputs_of(value)
        # Without a command nothing tells that Redis was reached.
        with self._using_redis(timeout) if self._texts.needs(values) else nullcontext():
            return run(self.db, converted(self.name, self._texts, values))

    def cancel(self, uri: str) -> bool:
        """Withdraw a request that is not being computed yet; its result is `RequestCancelled`.

        The positions of the latest requests of this queue are known; for other requests the stream is searched.

        Args:
            uri: Uri of the request.

        Returns:
            True if the request was withdrawn; False if a slot has read it, or it is answered or unknown.

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
            request_data: A dict of inputs by name (`client.sending.convert.to_input` lists the types); or JSON text
                `{"instances": [{name: numbers}]}`, whose first instance is sent, and may lack the name; or one input,
                which is sent under the name `t`.
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
        inputs = self._inputs(request_data, timeout)
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
        position = run(connection, enqueue(self.name, uri, inputs, options, self._outlet, channel, RESULT))

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
        inputs = self._inputs(request_data, timeout)
        channel = JobKeys(self.name).pieces(answer.uri)
        with self._using_redis(timeout):
            is_new = self._subscription.subscribe(channel)
            queued = enqueue(self.name, answer.uri, inputs, options, self._outlet, reply_with=PIECES)
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
            after: `last_id` of the iterator that got the pieces before; by default, all pieces are new.
            timeout: As for `stream`. An unknown request ends in `ResultTimeout`.
        """
        answer = PieceIteration(self.name, uri, after)
        answer.position = self._recent.find(uri)
        with self._using_redis(timeout):
            self._subscription.subscribe(JobKeys(self.name).pieces(uri))
        return self._begun(answer, timeout)

    def _begun(self, answer: PieceIteration, timeout: float) -> Pieces:
        using = partial(self._using_redis, timeout)
        pieces = answer.pieces(self.db, self._subscription, timeout, using, self._recent)
        # A generator that has not begun is closed without its clean-up.
        next(pieces)
        return Pieces(answer, pieces)


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
