"""Reports of a job in Redis: its limits for clients, the state of each slot, and the totals of its work."""

import contextlib
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import redis
from redis.exceptions import RedisError

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.limits import publish_limits
from cluster_serving.connectors.slot.permissions import refusal
from cluster_serving.connectors.slot.redis import Backoff, write_hash
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.protocol.errors import RedisUnavailable
from cluster_serving.protocol.events import record
from cluster_serving.protocol.generations import LAST, SERVING, Generation
from cluster_serving.protocol.keys import (
    JOBS_KEY,
    SECRET_FIELDS,
    JobKeys,
    as_text,
)
from cluster_serving.protocol.scripts import PUT_MEMBER, REPORT, Call, call, flat
from cluster_serving.protocol.slots import HEARTBEAT_S, SlotReport

T = TypeVar("T")

log = logging.getLogger(__name__)

_CLOSE_TIMEOUT = 2.0


class Sharing(Protocol):
    """Whether the records of the slot's model share calls (`job.models.batched.sharing`)."""

    @property
    def ended(self) -> str:
        """Reason for which they do so no more; empty while they may."""

    @property
    def content(self) -> str:
        """Digest of the model; empty while it is not known."""

    def end(self, reason: str) -> None:
        """Compute one record a call from now on; any thread may call it."""


class SlotReporter:
    """Writer of the reports of one slot (`protocol.slots`); a report that Redis never takes fails nothing.

    A slot whose source cannot read (`Ticks.problem`) is reported as failed, until it can.

    A thread gives the heartbeat of this attempt, unless Flink does not run the slot any more (`slot.ticks`). It also
    looks for what the job has written once. If Redis has lost it (FLUSHALL, or a restart without persistence), the
    thread writes it again: generations, report, name of the job, limits and model secret.

    The latest attempt to load the model has the slot. Any other one writes nothing more, and its thread ends; it also
    ends with its generation.

    A slot that finds that records may not share calls marks the model in Redis. The others see the mark with their
    heartbeats; a slot that starts asks for it.

    Attributes:
        sharing: Whether records share calls; None before that is known.
        secret: Secret and salt of the encrypted model, once they are known. They are only written again along with the
            report: an operator may have removed them on purpose.
    """

    def __init__(self, client: redis.Redis, options: RedisOptions, submission: str, subtask: int) -> None:
        # redis-py types its commands as if they might be awaitable.
        self._client: Any = client
        self._options = options
        self._job = options.job
        self._keys = JobKeys(options.job)
        self._subtask = subtask
        self._shared = SharedSlot.of(options.name, subtask)
        self._ticks = self._shared.ticks
        self._backoff = Backoff(f"slot {subtask} of job {self._job}")
        self.secret = ("", "")
        self.sharing: Sharing | None = None
        self._known_marks = 0
        # Of every report of this attempt.
        self._own: dict[str, Any] = {
            "submission": submission,
            "attempt": uuid.uuid4().hex,
            "index": subtask,
            "version": options.version,
            "numbered": options.numbered,
            "restarts": 0,
        }
        self._report = SlotReport(state="loading", **self._own)
        self._told_problem = ""
        self._generations: dict[bytes, bytes] = {}
        self._serves = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="reports", daemon=True)

    def loading(self) -> None:
        """Report that the slot begins to load its model.

        The report keeps the description of its last model, and the error of the attempt before.

        Raises:
            RedisUnavailable: If Redis refuses a command of the reports; nothing but Flink can then tell of it.
        """
        earlier = self._persist(lambda: self._allowed(lambda: self._client.hget(self._keys.slots(), self._subtask)))
        self._generations = self._persist(lambda: self._allowed(self._read_generations)) or {}
        report = SlotReport.from_json(earlier) if earlier else self._report
        if report.submission != self._report.submission:
            report = replace(report, code=None, error=None)
        elif earlier and report.attempt:
            # The first report of a submission is the launcher's, which has no attempt.
            self._own["restarts"] = report.restarts + 1
            self.tell("started again by Flink")
        self._change(replace(report, state="loading"))
        self._persist(lambda: self._allowed(lambda: self._put("take")))
        self._thread.start()

    def ready(self, report: SlotReport) -> None:
        """Report that the model is loaded and warm; slot, submission, attempt, time and version are filled in."""
        self._change(replace(report, state="ready"))
        self._persist(self._put)

    def failed(self, code: str, error: str) -> None:
        """Report that the model cannot be loaded; the description of the slot's last model stays."""
        self._change(replace(self._report, state="failed", code=code, error=error))
        self._persist(self._put)
        self.tell(f"failed: {error}")

    def marks(self) -> dict[str, str]:
        """Return the models whose records share no calls: the digest of each, or the submission → the reason."""
        return self._persist(lambda: self._allowed(self._read_marks)) or {}

    def close(self) -> None:
        """End the thread, unless Redis takes longer than 2 s."""
        self._closed.set()
        self._thread.join(_CLOSE_TIMEOUT)

    def tell(self, what: str) -> None:
        """Add to the events of the job what has happened to this slot."""
        slot = f"slot {self._subtask} of generation {self._options.generation}"
        record(self._client, self._job, f"{slot} {what}", f"process {os.getpid()} on {socket.gethostname()}")

    def _change(self, report: SlotReport) -> None:
        self._report = replace(report, time=time.time(), **self._own)

    def _put(self, how: str = "put") -> None:
        """Write report, heartbeat and name of the job; see `report.lua` for how."""
        self._told_problem = problem = self._ticks.problem
        report = self._report
        if problem and report.state == "ready":
            report = replace(report, state="failed", code=RedisUnavailable.code, error=problem)
        self._write(how, report.to_json())
        # In a Redis Cluster this key may be on another node; the job can then be found by its name only.
        with contextlib.suppress(RedisError):
            call(self._client, Call(PUT_MEMBER, [JOBS_KEY], [self._job]))

    def _allowed(self, action: Callable[[], T]) -> T:
        """Return what an action returns; a refusal that no repetition mends becomes a `RedisUnavailable`."""
        try:
            return action()
        except RedisError as error:
            raise refusal(self._client, error) or error from None

    def _write(self, how: str, report: str = "") -> int:
        number = self._options.generation
        keys = [self._keys.slots(), self._keys.slots(number), self._keys.generations, self._keys.one_by_one]
        # The source has read them last, if Flink runs it in this process.
        generations = flat(self._ticks.generations or self._generations)
        ended = self.sharing.ended if self.sharing else ""
        mark = [self._report.submission, self.sharing.content if self.sharing and ended else "", ended]
        arguments = [number, self._subtask, self._report.attempt, how, report, *mark, *generations]
        return int(call(self._client, Call(REPORT, keys, arguments)))

    def _persist(self, action: Callable[[], T]) -> T | None:
        try:
            return self._backoff.persist(action)
        except RedisError as error:
            log.warning("slot %d of job %s cannot report its state: %s", self._subtask, self._job, error)
            return None

    def _keep(self) -> None:
        while not self._closed.wait(HEARTBEAT_S):
            if not self._ticks.stale:
                with contextlib.suppress(RedisError, OSError):
                    self._restore()

    def _restore(self) -> None:
        """Give a heartbeat, and write what Redis has lost; end the thread if another attempt has the slot."""
        job = self._job
        self._look()
        if not self._generations:
            # A shadow, whose role the generation that serves writes.
            return
        written = self._write("beat")
        if not written:
            self._closed.set()
            return
        if written > 0:
            self._learn_of(written - 1)
        if written > 0 and self._ticks.problem != self._told_problem:
            self._put()
        elif written < 0:
            log.warning("job %s: Redis has lost the report of slot %d, writing it again", job, self._subtask)
            self._put()
            if any(self.secret) and not self._client.exists(self._keys.secret):
                write_hash(self._client, self._keys.secret, dict(zip(SECRET_FIELDS, self.secret, strict=True)))
        if self._serves and not self._client.exists(self._keys.limits):
            publish_limits(self._client, self._options)

    def _read_marks(self) -> dict[str, str]:
        found = self._client.hgetall(self._keys.one_by_one)
        return {as_text(name): as_text(reason) for name, reason in found.items()}

    def _learn_of(self, count: int) -> None:
        """Compute one record a call, and report it, if one of the marks is of this model; `count` tells of new ones."""
        sharing = self.sharing
        if sharing is None or sharing.ended or count == self._known_marks:
            return
        marks, content = self._read_marks(), sharing.content
        if reason := marks.get(self._report.submission) or marks.get(content):
            sharing.end(reason)
            if self._report.state == "ready":
                self._change(replace(self._report, one_by_one=sharing.ended))
                self._put()
        elif content:
            self._known_marks = count

    def _look(self) -> None:
        """Keep a copy of the generations, for a Redis that loses them; publish the limits of a new one that serves."""
        if found := self._read_generations():
            self._generations = found
            serves, self._serves = self._serves, self._role(found) == SERVING
            if self._serves and not serves:
                publish_limits(self._client, self._options)
        elif not (self._generations or self._options.shadow):
            options, number, submission = self._options, self._options.generation, self._report.submission
            own = Generation(number, SERVING, submission, options.version, options.numbered, since=time.time())
            self._generations = {b"%d" % number: own.to_json().encode(), LAST.encode(): b"%d" % number}

    def _read_generations(self) -> dict[bytes, bytes]:
        """Return the generations; none if Redis has lost them, even if counters have made the hash anew."""
        found: dict[bytes, bytes] = self._client.hgetall(self._keys.generations)
        return found if LAST.encode() in found else {}

    def _role(self, found: dict[bytes, bytes]) -> str:
        record = found.get(b"%d" % self._options.generation)
        return Generation.from_json(record).role if record else ""
