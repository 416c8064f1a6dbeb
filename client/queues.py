"""The synchronous client: `InputQueue` takes requests, `OutputQueue` gives results.

Constructor arguments and methods are those of the original's client, without its HTTP mode (`frontend_url`, `sync`).
Beyond it: results can be waited for, errors are exceptions (`protocol.errors`) instead of the strings "[]" and "NaN",
dtypes survive, a uri may hold any character, and reading all results scans instead of blocking Redis.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from types import TracebackType
from typing import Any, Self

from redis.exceptions import RedisError

from cluster_serving.client.cancel import Place, RecentEntries, cancel
from cluster_serving.client.convert import inputs_of, to_inputs
from cluster_serving.client.enqueue import enqueueing
from cluster_serving.client.mailbox import Mailbox
from cluster_serving.client.request_options import RequestOptions, split
from cluster_serving.protocol.connection import connect, result_timeout, translated
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.keys import DEFAULT_JOB, NORMAL, result_key, result_pattern, uri_of
from cluster_serving.protocol.payload_files import PayloadFolders
from cluster_serving.protocol.results import Fields, Result, decode_result
from cluster_serving.protocol.scripts import run

SCAN_COUNT = 500


class _Queue:
    """What both queues share: the job's name and a thread-safe connection to its Redis."""

    def __init__(
        self,
        host: str | None = None,
        port: int | str | None = None,
        name: str = DEFAULT_JOB,
        *,
        url: str | None = None,
        **redis_options: Any,
    ) -> None:
        self.name = name
        self.host = host or "localhost"
        self.port = str(port or 6379)
        self.db = connect(self.host, self.port, url, name, **redis_options)
        self._threads = threading.local()
        self._recent = RecentEntries()
        self._folders = PayloadFolders()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        mailbox: Mailbox | None = getattr(self._threads, "mailbox", None)
        if mailbox is not None:
            mailbox.close()
        self.db.close()

    @property
    def _mailbox(self) -> Mailbox:
        # A subscription connection cannot be shared, so each thread that waits has its own.
        if not hasattr(self._threads, "mailbox"):
            self._threads.mailbox = Mailbox(self.db, self.name)
        mailbox: Mailbox = self._threads.mailbox
        return mailbox

    def _fetch(self, uri: str, delete: bool) -> dict[bytes, bytes] | None:
        key = result_key(self.name, uri).encode("utf8", "surrogateescape")
        fields: dict[bytes, bytes] = self.db.hgetall(key)  # type: ignore[assignment,arg-type]
        # Only when it has arrived: a lost reply must not lose the result. Nor must a failure to delete: it expires.
        if fields and delete:
            with suppress(RedisError):
                self.db.delete(key)
        return fields or None


class OutputQueue(_Queue):
    """Reads the results of one job.

    Args:
        host: Redis host, default `localhost`.
        port: Redis port, default 6379.
        name: The job's `jobName`, default `serving_stream`.
        url: Instead of host and port: `redis://[user:password@]host:port/db`, `rediss://` for TLS, or one of
            Sentinels or of a cluster (`protocol.failover.FailoverUrl`).
        redis_options: Further arguments of `redis.Redis`, such as `password` or `ssl_ca_certs`.
    """

    def query(self, uri: str, delete: bool = False, timeout: float | None = None) -> Result | None:
        """Result of a request.

        Args:
            uri: The name it was queued under.
            delete: Also delete it from Redis; otherwise it stays until `resultTtl` is over.
            timeout: Seconds to wait for it. None does not wait.

        Returns:
            An ndarray, or a list of them for a model with several outputs, or (class, value) pairs if the job filters
            by `topN`. None if there is no result and no timeout was given.

        Raises:
            ResultTimeout: No result came in time.
            ServingError: The request failed; the class and message say why.
            RedisUnavailable: Redis cannot be reached.
        """
        with translated(self.db):
            fields = self._fetch(uri, delete)
            if fields is None and timeout is not None:
                fields = self._wait(uri, delete, timeout)
        if fields is None:
            if timeout is None:
                return None
            raise result_timeout(self.db, self.name, timeout, uri)
        return decode_result(fields)

    def query_and_delete(self, uri: str, timeout: float | None = None) -> Result | None:
        """As `query`, and delete the result from Redis."""
        return self.query(uri, delete=True, timeout=timeout)

    def dequeue(self) -> dict[str, Result | ServingError]:
        """Take all results that are there, and delete them.

        Returns:
            uri → result, or the error (not raised) if the request failed.

        Raises:
            RedisUnavailable: Redis cannot be reached.
        """
        found: dict[bytes, Fields] = {}
        with translated(self.db):
            keys = list(self.db.scan_iter(match=result_pattern(self.name), count=SCAN_COUNT, _type="HASH"))
            for start in range(0, len(keys), SCAN_COUNT):
                chunk = keys[start : start + SCAN_COUNT]
                with self.db.pipeline(transaction=False) as pipeline:
                    for key in chunk:
                        pipeline.hgetall(key)
                    answers = pipeline.execute()
                found |= {key: fields for key, fields in zip(chunk, answers, strict=True) if fields}
        # Only when all have arrived: a lost reply must not lose results. Nor must a failure to delete: they expire.
        with suppress(RedisError):
            for chunk in batched(found, SCAN_COUNT):
                self.db.delete(*chunk)
        return results_of(self.name, found)

    def _wait(self, uri: str, delete: bool, timeout: float) -> dict[bytes, bytes] | None:
        channel = result_key(self.name, uri)
        started = time.monotonic()
        self._mailbox.subscribe(channel)
        try:
            # The result may have come between the first look and the subscription.
            return self._fetch(uri, delete) or self._mailbox.wait(
                channel, uri, lambda: self._fetch(uri, delete), timeout - (time.monotonic() - started)
            )
        finally:
            self._mailbox.unsubscribe(channel)


class InputQueue(_Queue):
    """Queues requests for one job.

    Args:
        host: Redis host, default `localhost`.
        port: Redis port, default 6379.
        name: The job's `jobName`, default `serving_stream`.
        url: Instead of host and port: `redis://[user:password@]host:port/db`, `rediss://` for TLS, or one of
            Sentinels or of a cluster (`protocol.failover.FailoverUrl`).
        redis_options: Further arguments of `redis.Redis`, such as `password` or `ssl_ca_certs`.
    """

    def enqueue(self, uri: str, **data: object) -> str:
        """Queue a request and return at once.

        Args:
            uri: Name under which the result is found; an earlier result of the same name is removed.
            data: The model's inputs by name; `client.convert.to_input` lists what they can be. Plain Python values
                under these names are options (`client.request_options`): `deadline`, the seconds that the request may
                wait before it is computed, else it is answered with `DeadlineExceeded`; `priority`, which is
                `high`, `normal` or `low`; `block=True` and `timeout`, to
                wait so many seconds for room in a full queue (without `timeout`, as long as it takes).

        Returns:
            The uri.

        Raises:
            InvalidInput: The uri or an input cannot be sent; nothing was queued.
            QueueFull: The queue is full, or Redis has reached its memory limit; nothing was queued.
            RedisUnavailable: Redis cannot be reached.
        """
        options, inputs = split(data)
        self._recent.remember(uri, self._add(uri, inputs, options))
        return uri

    def cancel(self, uri: str) -> bool:
        """Withdraw a request that is not being computed yet; who waits for its result gets `RequestCancelled`.

        One that this queue has queued lately is found at once; for others the stream is searched.

        Args:
            uri: The name it was queued under.

        Returns:
            Whether it was withdrawn; false if it is being computed, is answered, or is not known.

        Raises:
            RedisUnavailable: Redis cannot be reached.
        """
        with translated(self.db):
            return run(self.db, cancel(self.name, uri, self._recent.find(uri)))

    def predict(self, request_data: object, timeout: float = 5, *, priority: str = NORMAL) -> Result:
        """Queue a request, wait for its result and delete it from Redis.

        Args:
            request_data: A dict of inputs by name; or JSON text `{"instances": [{name: numbers}]}`, of which the
                first instance is used; or any single value that `enqueue` takes, sent under the name `t`.
            priority: `high`, `normal` or `low`.
            timeout: Seconds to wait; also the request's deadline, so that nobody computes what nobody waits for.

        Returns:
            See `OutputQueue.query`.

        Raises:
            ResultTimeout: No result came in time.
            DeadlineExceeded: The same, and the job has dropped the request.
            ServingError: The request failed, or could not be queued; see `enqueue`.
        """
        options = RequestOptions.waiting(timeout, priority)
        uri = uuid.uuid4().hex
        mailbox = self._mailbox
        with translated(self.db):
            mailbox.subscribe(mailbox.reply_channel)
            self._add(uri, inputs_of(request_data), options, mailbox.reply_channel)
            fields = mailbox.wait(mailbox.reply_channel, uri, lambda: self._fetch(uri, True), timeout)
        if fields is None:
            raise result_timeout(self.db, self.name, timeout)
        return decode_result(fields)

    def _add(self, uri: str, data: Mapping[str, object], options: RequestOptions, reply_to: str = "") -> Place:
        with translated(self.db):
            return run(self.db, enqueueing(self.name, uri, to_inputs(data), options, self._folders, reply_to))


def batched(keys: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Lists of at most so many keys."""
    left = iter(keys)
    while part := list(islice(left, size)):
        yield part


def results_of(job: str, found: Mapping[bytes, Fields]) -> dict[str, Result | ServingError]:
    """Read result hashes by their keys; gives results by uri."""
    return {
        uri_of(job, key.decode("utf8", "surrogateescape")): result_or_error(fields) for key, fields in found.items()
    }


def result_or_error(fields: Mapping[bytes, bytes]) -> Result | ServingError:
    """Read a result hash; a failed request gives its error as a value."""
    try:
        return decode_result(fields)
    except ServingError as error:
        return error
    except Exception as error:
        return ServingError(f"the result cannot be read: {type(error).__name__}: {error}")
