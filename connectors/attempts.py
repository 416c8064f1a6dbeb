"""What is known of the attempts at requests that were interrupted: notes for the dead letter, should it come to that.

Kept in the Redis hash `<jobName>:attempts` by stream and entry id, because the process that knows of an attempt may not
live to tell. Nothing is noted of a request that is answered at its first attempt.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import redis
from redis.exceptions import RedisError

from cluster_serving.connectors.hashes import put
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.reconnect import connect
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.keys import attempts_key

_KEEP_S = 7 * 24 * 3600
_MAX_TRACEBACK = 16_000


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last attempt at a request.

    Attributes:
        host: Machine that computed it.
        process: Process id there.
        time: When it began or failed, in seconds since the epoch.
        traceback: Of the exception that ended it; empty if the process died without one.
    """

    host: str = ""
    process: int = 0
    time: float = 0.0
    traceback: str = ""

    def __str__(self) -> str:
        if not self.process:
            return ""
        error = self.traceback.strip().rpartition("\n")[2]
        return f"; the last was process {self.process} on {self.host}{f', at {error}' if error else ''}"


class Attempts:
    """Notes of one job.

    Args:
        client: Connection to the job's Redis.
        job: `jobName`.
    """

    def __init__(self, client: redis.Redis, job: str) -> None:
        # redis-py types its commands as if they might be awaitable.
        self._client: Any = client
        self._key = attempts_key(job)

    def begin(self, entry: Entry) -> None:
        """This process is about to compute a request again, alone; what its batch failed at is no longer its fault."""
        self._write({_field(entry): _attempt("")})

    def fail(self, entries: Iterable[Entry]) -> None:
        """The exception that is being handled interrupts requests."""
        text = traceback.format_exc()[-_MAX_TRACEBACK:]
        self._write({_field(entry): _attempt(text) for entry in entries})

    def last(self, entry: Entry) -> Attempt:
        """The last attempt at a request; empty if nothing was noted."""
        # Earlier versions noted it by its id alone.
        raw = next(filter(None, self._client.hmget(self._key, _field(entry), entry.id)), None)
        return Attempt(**json.loads(raw)) if raw else Attempt()

    def forget(self, entry: Entry) -> None:
        """A request is answered, or given up."""
        self._client.hdel(self._key, _field(entry), entry.id)

    def _write(self, attempts: dict[str, Attempt]) -> None:
        # What cannot be noted cannot be tried, and every look at a request that is not tried counts as an attempt.
        put(self._client, self._key, {key: json.dumps(asdict(value)) for key, value in attempts.items()})
        self._client.expire(self._key, _KEEP_S)


@contextlib.contextmanager
def noted(options: RedisOptions, job: str, entries: Iterable[Entry]) -> Iterator[None]:
    """Note an exception that leaves the block, and with it interrupts requests; it goes on to Flink."""
    try:
        yield
    except BaseException:
        # A connection of its own: that of the caller may be in the middle of an answer.
        with contextlib.suppress(RedisError, OSError), connect(options) as client:
            Attempts(client, job).fail(entries)
        raise


def _field(entry: Entry) -> str:
    """An id is unique only in its stream, of which a job has one for each priority."""
    return f"{entry.priority}:{entry.id.decode()}"


def _attempt(text: str) -> Attempt:
    return Attempt(socket.gethostname(), os.getpid(), time.time(), text)
