"""Notes on attempts at interrupted requests, for their dead letters.

They are kept in the Redis hash `<jobName>:attempts` by stream and entry id, because the process that makes an attempt
may die in it. A request that is answered at its first attempt has no note.
"""

import contextlib
import os
import socket
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import redis
from redis.exceptions import RedisError

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.ends import STOPPED, read_end
from cluster_serving.connectors.slot.redis import connect, write_hash
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.host.process_table import start_time
from cluster_serving.protocol.json_record import JsonRecord
from cluster_serving.protocol.keys import JobKeys

_KEEP_S = 7 * 24 * 3600
_MAX_TRACEBACK = 16_000
_MOST_EXCUSED = 3


@dataclass(frozen=True, slots=True)
class Attempt(JsonRecord):
    """The last attempt at a request.

    Attributes:
        host: Machine that computed the request.
        process: Process id there.
        started: Start of that process, in clock ticks since its machine booted.
        time: Begin or failure of the attempt, in seconds since the epoch.
        traceback: Traceback of the exception or the crash that ended the attempt; empty if the process died without.
        end: File in which the process records its end (`connectors.slot.ends`); empty without, as in thread mode.
        alone: True if the process computes nothing beside this request, so that the crash in `end` is this one's.
        stops: Number of attempts, this one included, that did not end their process: Flink has ended it for another
            reason, it has crashed but computed other requests too, or it still computes and only seemed dead.
        excused: Number of those whose process still ran.
        crashed: True if the process has crashed, and computed nothing but this request.
        record: Index of the record that was computed, if they are computed one by one; -1 for all of them.
        given_up: Messages of the records that are given up, by index.
        spent: Number of attempts, without `stops`, that have counted for these.
    """

    host: str = ""
    process: int = 0
    started: int = 0
    time: float = 0.0
    traceback: str = ""
    end: str = ""
    alone: bool = True
    stops: int = 0
    excused: int = 0
    crashed: bool = False
    record: int = -1
    given_up: Mapping[str, str] = field(default_factory=dict)
    spent: int = 0

    def __str__(self) -> str:
        if not self.process:
            return ""
        error = self.traceback.strip().rpartition("\n")[2]
        return f"; the last was process {self.process} on {self.host}{f', at {error}' if error else ''}"

    @property
    def runs(self) -> bool:
        """True if the attempt still runs, on this machine."""
        here = self.host == socket.gethostname()
        return here and not self.traceback and start_time(self.process) == self.started


class Attempts:
    """Notes of one job.

    Args:
        client: Connection to the job's Redis.
        job: `jobName`.
        end: See `Attempt.end`.
    """

    def __init__(self, client: redis.Redis, job: str, end: str = "") -> None:
        # redis-py types its commands as if they might be awaitable.
        self._client: Any = client
        self._key = JobKeys(job).attempts
        process = os.getpid()
        started = start_time(process) or 0
        self._here: dict[str, Any] = {"host": socket.gethostname(), "process": process, "started": started, "end": end}

    def note(self, entries: Iterable[Entry], error: str = "", goes_on: bool = False, **changes: Any) -> None:
        """Note that this process begins to compute requests, or the traceback of the error that interrupts them.

        The attempt of the last note `goes_on` with a further record, or it is another one. `changes` are other
        attributes of the attempt than those of the last note.
        """
        changes |= self._here | {"time": time.time(), "traceback": error[-_MAX_TRACEBACK:], "crashed": False}
        # Records of one entry may be many.
        each = {_field(entry): entry for entry in entries}
        last = {key: self.last(entry, ended=not goes_on and not error) for key, entry in each.items()}
        notes = {key: replace(one, **changes).to_json() for key, one in last.items()}
        # A full Redis takes notes too: without a note a request is not tried, yet each delivery counts as an attempt.
        write_hash(self._client, self._key, notes)
        self._client.expire(self._key, _KEEP_S)

    def last(self, entry: Entry, ended: bool = True) -> Attempt:
        """Return the last attempt at a request, with the recorded end of its process; an empty one if none is noted.

        If it has `ended` and its process runs, it did not end its process. A request that holds up each process that
        computes it does not end one either, so that is believed a few times only.
        """
        attempt = self._read(entry)
        end = read_end(attempt.end)
        if end == STOPPED or (end and not attempt.alone):
            return replace(attempt, stops=attempt.stops + 1)
        if ended and not end and attempt.excused < _MOST_EXCUSED and attempt.runs:
            return replace(attempt, stops=attempt.stops + 1, excused=attempt.excused + 1)
        return replace(attempt, traceback=end, crashed=True) if end else attempt

    def outlived(self, entry: Entry) -> None:
        """Note that this process has ended its attempt at a request, which another slot has taken over meanwhile.

        Without it, what ends this process later, a crash at its next request say, would convict this one.
        """
        attempt = self._read(entry)
        # The note on a record is of the process that computes it, which has the same end.
        who = "end" if attempt.end else "process"
        if attempt.host == self._here["host"] and getattr(attempt, who) == self._here[who]:
            note = replace(attempt, process=0, end="", stops=attempt.stops + 1)
            write_hash(self._client, self._key, {_field(entry): note.to_json()})

    def forget(self, entry: Entry) -> None:
        """Delete the note on a request that is answered or given up."""
        self._client.hdel(self._key, _field(entry))

    def _read(self, entry: Entry) -> Attempt:
        raw = self._client.hget(self._key, _field(entry))
        return Attempt.from_json(raw) if raw else Attempt()


@contextlib.contextmanager
def noted(options: RedisOptions, entries: Iterable[Entry]) -> Iterator[None]:
    """Note an exception that leaves the block and so interrupts requests, then raise it to Flink."""
    try:
        yield
    except BaseException:
        # A connection of its own: the caller's may be in the middle of an answer.
        with contextlib.suppress(RedisError, OSError), connect(options) as client:
            Attempts(client, options.job).note(entries, traceback.format_exc())
        raise


def _field(entry: Entry) -> str:
    """Return the name of a note; an entry id is unique only in its stream, and a job has one stream per priority."""
    return f"{entry.priority}:{entry.id.decode()}"
