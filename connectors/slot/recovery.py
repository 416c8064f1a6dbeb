"""Recovery: a slot computes interrupted requests, and the records of each, one by one; it gives up some of them."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import ResponseError

from cluster_serving.connectors.slot import failures
from cluster_serving.connectors.slot.answer import dead_letter
from cluster_serving.connectors.slot.attempts import Attempts
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
        last, options = self._attempts.last(entry), self._slot.options
        several = entry.record_count > 1
        # A first attempt at all records of an entry counts for none of them.
        most = options.max_deliveries + (several and last.record < 0)
        counted = attempts - last.spent
        # The process has died while it computed this request alone. If it is late, too, no further attempt will tell.
        is_convicted = last.crashed or (last.process and last.alone and counted > last.stops and self._is_late(entry))
        if counted < _MOST_STOPS * most and counted - last.stops < most and not is_convicted:
            return self._again(entry, last.given_up, last.spent)
        error = PoisonRequest(
            f"given up after {counted} attempts: each time, the process that computed this request died or was "
            f"stopped{last}"
        )
        self._dead_letters.inc()
        self._slot.counts.add(GIVEN_UP)
        # If the answer of all records cannot be written, the last of them is given up already.
        if several and last.record >= 0 and str(last.record) not in last.given_up:
            # It is answered with the others.
            record = entry.of_record(last.record, columns.Columns(entry.decode()[1])[last.record])
            letter: Any = DeadLetter.of(record, error, last.traceback).fields()
            # A full Redis keeps no letter.
            with contextlib.suppress(ResponseError):
                self._slot.client.xadd(self._slot.keys.dead_letters, letter, maxlen=MAX_DEAD_LETTERS)
            given_up = {**last.given_up, str(last.record): error.message}
            # Attempts at the next one are counted anew.
            return self._again(entry, given_up, attempts, stops=0, excused=0)
        dead_letter(
            self._slot.client, options.job, options.result_ttl_s, entry, error, last.traceback, version=options.version
        )
        self._attempts.forget(entry)
        self._slot.counts.add(FAILED, entry.record_count, error.code)
        failures.note(entry, error.code, options, self._slot.index)
        return []

    def _is_late(self, entry: Entry) -> bool:
        deadlines = self._slot.flow.deadlines
        return deadlines is not None and bool(deadlines.expired([entry]))

    def _again(self, entry: Entry, given_up: Mapping[str, str], spent: int, **changes: Any) -> list[Entry]:
        alone = self._slot.flow.idle
        self._attempts.note([entry], record=-1, given_up=given_up, spent=spent, alone=alone, **changes)
        self._tried = entry
        return [entry._replace(one_by_one=json.dumps(given_up).encode() if entry.record_count > 1 else b"")]
