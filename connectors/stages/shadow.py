"""Shadow: a generation of a job that computes copies of requests, and whose answers are compared and thrown away.

The slots that serve copy a share of the requests into the queue of the shadow, and keep their answers of these in Redis
for a while. The slots of the shadow compare theirs with them. All of this is the work of threads beside the data path
(`connectors.slot.backlog`). What these cannot keep up with, or Redis does not take, is skipped.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import redis
from redis.exceptions import RedisError

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.answer import AnsweredBatch
from cluster_serving.connectors.slot.backlog import Backlog
from cluster_serving.connectors.slot.base import Slot
from cluster_serving.connectors.slot.stage import AnswerStage, Stage
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.figures.comparison import MOST_EXAMPLES
from cluster_serving.protocol.figures.tally import LATENCY_US, Tally
from cluster_serving.protocol.generations import is_in_trial
from cluster_serving.protocol.keys import JobKeys, to_bytes
from cluster_serving.protocol.results import to_fields
from cluster_serving.protocol.scripts import COPY, KEEP, TALLY, Argument, Call, call, fetch_call, fields_of, flat

MOST_COPIES = 1000
"""Most copies that wait for a shadow."""

MOST_BYTES = 64 << 20
"""Most bytes of the copies that wait, or of the kept answers, if they are of similar size."""

_KEEP_S = 300
_TIMEOUT_S = 60.0
_FULL_TIMEOUT_S = 1.0
# An answer may come before the copy of its request has arrived; it never arrives if it is skipped.
_COPY_TIMEOUT_S = 2.0
_COPY_INTERVAL_S, _KEEP_INTERVAL_S = 0.02, 0.5


@dataclass(frozen=True, slots=True)
class _Kept:
    """An answer on its way to the comparison; `request` is the name of the request within the shadow's queue."""

    shadow: int
    request: str
    fields: Mapping[str, str | bytes]
    latency_us: int
    until: float

    @property
    def size(self) -> int:
        return sum(map(len, self.fields.values()))


class Mirror(Backlog[Entry], Stage):
    """Copies a share of the requests that a slot reads."""

    def __init__(self, slot: Slot) -> None:
        Stage.__init__(self, slot)
        Backlog.__init__(self, "copies for a shadow", _COPY_INTERVAL_S)
        self._count = 0
        self._skipped = 0

    def admit(self, entries: list[Entry]) -> list[Entry]:
        """Copy the share of the requests that is for a shadow; return all, and these marked."""
        shadow = self.slot.generation.shadow
        if shadow is None:
            return entries
        mark = str(shadow.number).encode()
        first, self._count = self._count, self._count + len(entries)
        marked = [
            entry._replace(shadow=mark) if is_in_trial(number, shadow.share) else entry
            for number, entry in enumerate(entries, first)
        ]
        chosen = [entry for entry in marked if entry.shadow]
        if not chosen or self.put(chosen):
            return marked
        self._skipped += len(chosen)
        return entries

    def _work(self, entries: list[Entry]) -> list[Entry]:
        number = int(entries[-1].shadow)
        skipped, self._skipped = self._skipped, 0
        keys = [self.slot.keys.shadow(number).job, self.slot.keys.compared(number)]
        arguments: list[Argument] = [MOST_COPIES, MOST_BYTES, _KEEP_S, skipped]
        for entry in entries:
            if int(entry.shadow) == number:
                keys.append(self.slot.keys.awaited(number, _name(entry)))
                arguments += [_name(entry), to_bytes(entry.uri), entry.serde, entry.data, entry.records]
        try:
            call(self.slot.client, Call(COPY, keys, arguments))
        except (RedisError, OSError):
            self._skipped += skipped + len(entries)
        return []


class Recorder(Backlog[_Kept], AnswerStage):
    """Keeps the answers of a slot that serves, those of requests that were copied."""

    def __init__(self, client: redis.Redis, options: RedisOptions) -> None:
        super().__init__("answers for a shadow", _KEEP_INTERVAL_S)
        self._client = client
        self._keys = JobKeys(options.job)

    def answered(self, batch: AnsweredBatch, write_us: int) -> None:
        """Keep the answers of a batch, if it has some of copied requests."""
        if any(answer.entry.shadow for answer in batch.answers):
            self.put(list(self._kept(batch, batch.wait_us + batch.inference_us + write_us)))

    def _kept(self, batch: AnsweredBatch, latency_us: int) -> Iterator[_Kept]:
        for entry, fields, *_ in batch.answers:
            if entry.shadow:
                until = time.monotonic() + _COPY_TIMEOUT_S
                yield _Kept(int(entry.shadow), _name(entry), fields, latency_us, until)

    def _work(self, answers: list[_Kept]) -> list[_Kept]:
        number = answers[-1].shadow
        keys = [self._keys.shadow(number).job]
        arguments: list[Argument] = [MOST_BYTES, _KEEP_S]
        for answer in answers:
            parts = [*flat(answer.fields), LATENCY_US, answer.latency_us]
            keys.append(self._keys.awaited(answer.shadow, answer.request))
            arguments += [answer.size, len(parts), *parts]
        try:
            early = [answers[number - 1] for number in call(self._client, Call(KEEP, keys, arguments))]
        except (RedisError, OSError):
            # Their copies are computed in vain.
            return []
        return [answer for answer in early if time.monotonic() < answer.until]


class Comparator(Backlog[_Kept], AnswerStage):
    """Compares the answers of a slot of a shadow with those of the slots that serve."""

    def __init__(self, client: redis.Redis, options: RedisOptions) -> None:
        super().__init__("comparisons", _KEEP_INTERVAL_S)
        self._client = client
        self._keys = JobKeys(options.job)
        self._number = options.generation
        self._missed = 0

    def answered(self, batch: AnsweredBatch, write_us: int) -> None:
        """Compare the answers of a batch; a shadow that answers faster than its thread compares waits for a moment."""
        latency_us, until = batch.wait_us + batch.inference_us + write_us, time.monotonic() + _TIMEOUT_S
        own = [_Kept(self._number, answer.entry.uri, answer.fields, latency_us, until) for answer in batch.answers]
        if not self.put(own, _FULL_TIMEOUT_S):
            self._missed += len(own)

    def _work(self, answers: list[_Kept]) -> list[_Kept]:
        """Compare the answers whose counterparts have come, and return those that wait for theirs."""
        waiting = [answer for answer in answers if time.monotonic() < answer.until]
        keys = [self._keys.awaited(self._number, answer.request) for answer in answers]
        tally = Tally()
        missed, self._missed = self._missed, 0
        tally.counts["skipped"] += missed
        done = []
        try:
            replies: Sequence[Any] = call(self._client, fetch_call(keys))
            waiting = []
            for answer, key, reply in zip(answers, keys, replies, strict=True):
                kept = fields_of(reply) if isinstance(reply, list) else {}
                if LATENCY_US.encode() in kept:
                    tally.add(kept, to_fields(answer.fields), answer.latency_us)
                    done.append(key)
                elif kept and time.monotonic() < answer.until:
                    waiting.append(answer)
                else:
                    tally.counts["skipped"] += 1
                    done.append(key)
            self._write(tally, done)
        except (RedisError, OSError):
            self._missed += missed
        return waiting

    def _write(self, tally: Tally, done: Sequence[str]) -> None:
        counts = {name: count for name, count in tally.counts.items() if count}
        if not (done or counts):
            return
        keys = [self._keys.shadow(self._number).job, self._keys.compared(self._number), *done]
        examples = tally.examples
        call(self._client, Call(TALLY, keys, [tally.largest, MOST_EXAMPLES, len(examples), *examples, *flat(counts)]))


def answers(client: redis.Redis, options: RedisOptions, *_: object) -> AnswerStage:
    """Return the stage of a sink: that of a shadow, or of a generation that may have one."""
    return Comparator(client, options) if options.shadow else Recorder(client, options)


def _name(entry: Entry) -> str:
    """Return the name of a request within the queue of a shadow; an entry id is unique only in its stream."""
    return f"{entry.priority}:{entry.id.decode()}"
