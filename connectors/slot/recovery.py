"""Recovery: a slot computes interrupted requests, and the records of each, one by one; it gives up some of them."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import ResponseError

from cluster_serving.connectors.slot import failures
from cluster_serving.connectors.slot.answer import dead_letter
from cluster_serving.connectors.slot.attempts import Attempt, Attempts
from cluster_serving.connectors.slot.base import Slot
from cluster_serving.connectors.slot.stage import Stage
from cluster_serving.protocol import columns
from cluster_serving.protocol.dead_letters import MAX_DEAD_LETTERS, DeadLetter
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import PoisonRequest
from cluster_serving.protocol.figures.metrics import FAILED, GIVEN_UP

# Attempts that Flink has ended do not count, unless they are many: a request on which the model hangs would otherwise
# be tried after each restart for ever.
_MOST_STOPS = 10


class Recovery:
    """Interrupted requests of one slot.

    Args:
        slot: The slot.
        end: See `Attempt.end`.
        stages: Stages of the slot, which may change or refuse a request.
    """

    def __init__(self, slot: Slot, end: str, stages: Sequence[Stage]) -> None:
        self._slot = slot
        self._stages = stages
        self._attempts = Attempts(slot.client, slot.options.job, end)
        self._tried: Entry | None = None
        self._dead_letters = slot.metrics.counter("deadLetters")

    def next(self, timeout: float) -> list[Entry]:
        """Read the next request, once the one before is answered; wait for that for `timeout` seconds at most."""
        reader = self._slot.reader
        recovered = reader.recover(timeout) if self._slot.flow.wait_idle(timeout) else None
        if self._tried is not None and (recovered or not reader.recovering):
            self._leave(self._tried)
            self._tried = None
        if recovered is None:
            reader.heartbeat()
            return []
        entry: Entry | None
        entry, deliveries = recovered
        for stage in self._stages:
            if entry := stage.readmit(entry):
                continue
            return []
        return self._try(entry, deliveries - 1)

    def _leave(self, entry: Entry) -> None:
        if self._slot.reader.is_pending(entry):
            # Another slot has claimed it.
            self._attempts.outlived(entry)
        else:
            self._attempts.forget(entry)

    def _try(self, entry: Entry, attempts: int) -> list[Entry]:
        """Return the request, if it is computed again; otherwise give up the request, or one of its records."""
        last = self._attempts.last(entry)
        counted = attempts - last.spent
        if not self._is_hopeless(entry, last, counted):
            return self._again(entry, last.given_up, last.spent)
        error = PoisonRequest(
            f"given up after {counted} attempts: each time, the process that computed this request died or was "
            f"stopped{last}"
        )
        self._dead_letters.inc()
        self._slot.counts.add(GIVEN_UP)
        # A record that is given up already was the last one, and the answer of all could not be written.
        if entry.record_count > 1 and last.record >= 0 and str(last.record) not in last.given_up:
            self._keep_record(entry, last, error)
            given_up = {**last.given_up, str(last.record): error.message}
            # Attempts at the next record are counted anew.
            return self._again(entry, given_up, attempts, stops=0, excused=0)
        self._give_up(entry, last, error)
        return []

    def _is_hopeless(self, entry: Entry, last: Attempt, counted: int) -> bool:
        """Return True if a request has had its attempts, `counted` since its last record was given up."""
        # A first attempt at all records of an entry counts for no record.
        most = self._slot.options.max_deliveries + (entry.record_count > 1 and last.record < 0)
        if last.crashed or counted >= _MOST_STOPS * most or counted - last.stops >= most:
            return True
        # The process has died while it computed this request alone. A late request has no time for a further attempt.
        has_died = bool(last.process) and last.alone and counted > last.stops
        return has_died and self._is_late(entry)

    def _keep_record(self, entry: Entry, last: Attempt, error: PoisonRequest) -> None:
        """Keep a dead letter of the record that was computed last; the record is answered with the others."""
        record = entry.of_record(last.record, columns.Columns(entry.decode()[1])[last.record])
        letter: Any = DeadLetter.of(record, error, last.traceback).fields()
        # A full Redis keeps no letter.
        with contextlib.suppress(ResponseError):
            self._slot.client.xadd(self._slot.keys.dead_letters, letter, maxlen=MAX_DEAD_LETTERS)

    def _give_up(self, entry: Entry, last: Attempt, error: PoisonRequest) -> None:
        """Answer a request with the error, and keep it as a dead letter."""
        options = self._slot.options
        dead_letter(
            self._slot.client, options.job, options.result_ttl_s, entry, error, last.traceback, version=options.version
        )
        self._attempts.forget(entry)
        self._slot.counts.add(FAILED, entry.record_count, error.code)
        failures.note(entry, error.code, options, self._slot.index)

    def _is_late(self, entry: Entry) -> bool:
        deadlines = self._slot.flow.deadlines
        return deadlines is not None and bool(deadlines.expired([entry]))

    def _again(self, entry: Entry, given_up: Mapping[str, str], spent: int, **changes: Any) -> list[Entry]:
        alone = self._slot.flow.idle
        self._attempts.note([entry], record=-1, given_up=given_up, spent=spent, alone=alone, **changes)
        self._tried = entry
        return [entry._replace(one_by_one=json.dumps(given_up).encode() if entry.record_count > 1 else b"")]
