"""Number of slots that a job needs, from the time that its requests wait in the queue: a decision without side effects.

A job gets more slots when the 95th percentile of the queue wait is above its target. It loses one at a time when the
wait is far below the target and the other slots can do the work. In between it keeps what it has.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from cluster_serving.protocol.figures.stats import LATENCY_BOUNDS_MS

SHORT_S, LONG_S = 10.0, 60.0
"""Seconds of samples that a decision needs: few if the wait is far above the target, more to tell chance from load."""

UP_AFTER_S, DOWN_AFTER_S = 15.0, 30.0
"""Seconds between a change and the next one: new slots first work off what has queued up."""

REMEMBER_S = 24 * 3600.0
"""Seconds for which a load counts as too much for a number of slots that it was once too much for."""

_PERCENTILE = 0.95
_FAR_BELOW, _FAR_ABOVE = 0.5, 2.0
_ENOUGH = 20
"""Answers that are enough for a percentile."""

_BUSY_AFTER_UP, _BUSY_AFTER_DOWN = 0.8, 0.6
"""Share of the time for which each slot computes after a change, as planned; in between nothing changes."""

_MOST_GROWTH = 2
_LIKE_BEFORE = 0.7
_SOON_DRAINED_S = 30.0
_DRAINED_AFTER_OUTAGE_S = 120.0
_RECENT_S = 5.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What is known of a job at one time.

    Attributes:
        time: Time in seconds, on any clock.
        slots: Number of slots, all of which are ready.
        answered: Total of answered records.
        waits: Totals of answered records by the wait in the queue (`JobStats.wait_ms`).
        busy_us: Total of microseconds that slots have computed.
        queued: Number of unanswered requests.
        oldest_ms: Milliseconds for which the oldest unread request has waited; 0 without such a request.
        requests_in: Total of requests that slots have read.
        records_in: Total of the records in these.
    """

    time: float
    slots: int
    answered: int
    waits: tuple[int, ...]
    busy_us: int
    queued: int
    oldest_ms: float
    requests_in: int
    records_in: int


@dataclass(frozen=True, slots=True)
class Decision:
    """A number of slots for a job.

    Attributes:
        slots: The number, within the limits.
        needed: The number that the load would need; more than `slots` if the limit is too low.
        reason: Why, in words.
    """

    slots: int
    needed: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Window:
    """What a job did between two samples."""

    first: Sample
    last: Sample

    @property
    def seconds(self) -> float:
        return self.last.time - self.first.time

    @property
    def answered(self) -> int:
        return self.last.answered - self.first.answered

    @property
    def arrivals(self) -> float:
        """Records that arrived per second; a queued request has as many as those that were read."""
        requests = self.last.requests_in - self.first.requests_in
        size = (self.last.records_in - self.first.records_in) / requests if requests else 1
        return max(self.answered + size * (self.last.queued - self.first.queued), 0) / self.seconds

    @property
    def busy(self) -> float:
        """Number of slots that computed, on average."""
        return min((self.last.busy_us - self.first.busy_us) / 1e6 / self.seconds, self.last.slots)

    @property
    def is_stalled(self) -> bool:
        return not self.answered and self.last.queued > 0

    @property
    def wait_ms(self) -> float:
        """The wait of 95 % of the requests; of requests that nobody answers, the age of the oldest."""
        if self.is_stalled:
            return self.last.oldest_ms
        return percentile([new - old for old, new in zip(self.first.waits, self.last.waits, strict=True)])

    @property
    def drained_in(self) -> float:
        """Seconds until the queue is empty if it shrinks as it did; infinite if it did not."""
        shrunk = self.first.queued - self.last.queued
        return self.last.queued * self.seconds / shrunk if shrunk > 0 else math.inf

    def __str__(self) -> str:
        wait = self.wait_ms
        if self.is_stalled:
            return f"nothing was answered for {self.seconds:.0f} s, and the oldest request waits for {wait:.0f} ms"
        return f"95 % of the requests wait up to {wait:.0f} ms in the queue"


class Autoscaler:
    """The samples of one job, and the decision that follows from them: a number of slots from `least` to `most`.

    95 % of the requests may wait in the queue for `target_ms` milliseconds.
    """

    def __init__(self, least: int, most: int, target_ms: float) -> None:
        self._least = least
        self._most = most
        self._target_ms = target_ms
        self._samples: deque[Sample] = deque()
        # Number of slots → arrivals per second that were too much for it, and when.
        self._too_much: dict[int, tuple[float, float]] = {}
        self._changed_at = -math.inf
        self._calm_since: float | None = None
        # From an outage, until what has queued up in it is answered.
        self._recovers = False

    def forget(self) -> None:
        """Forget all samples and loads, after a change of anything but the number of slots."""
        self.pause()
        self._too_much.clear()

    def pause(self) -> None:
        """Forget the samples: a slot or Redis is missing, and what queues up because of that is no load."""
        self._begin_anew()
        self._recovers = True

    def decide(self, sample: Sample) -> Decision | None:
        """Take a sample, and return the number of slots that the job should have; None if it has that number."""
        self._add(sample)
        slots = sample.slots
        if not self._least <= slots <= self._most:
            within = min(max(slots, self._least), self._most)
            return Decision(within, within, f"{slots} slots are not within {self._least} and {self._most}")
        if self._recovers and sample.oldest_ms <= self._target_ms:
            self._samples = deque([sample])
            self._recovers = False
        short, long = self._window(SHORT_S), self._window(LONG_S)
        if short is None or (self._recovers and short.drained_in < _DRAINED_AFTER_OUTAGE_S):
            return None
        if cause := self._excess(short, long):
            self._calm_since = None
            if sample.time - self._changed_at < UP_AFTER_S or short.drained_in < _SOON_DRAINED_S:
                return None
            known, _ = self._too_much.get(slots, (math.inf, 0.0))
            self._too_much[slots] = min(known, cause.arrivals), sample.time
            # The load may have begun in the middle of the window.
            recent = self._window(_RECENT_S) if cause is short else None
            needed = self._needed(slots, cause, max(cause.arrivals, recent.arrivals if recent else 0))
            return Decision(min(needed, self._most), needed, self._text(cause))
        if long is None or not self._is_calm(short, long):
            self._calm_since = None
            return None
        if self._calm_since is None:
            self._calm_since = sample.time
        calm = sample.time - max(self._calm_since, self._changed_at)
        return Decision(slots - 1, slots - 1, self._text(short)) if calm >= DOWN_AFTER_S else None

    def _begin_anew(self) -> None:
        self._samples.clear()
        self._calm_since = None

    def _text(self, window: _Window) -> str:
        return f"{window}, with a target of {self._target_ms:.0f} ms"

    def _add(self, sample: Sample) -> None:
        if self._samples:
            last = self._samples[-1]
            if last.slots != sample.slots:
                self._changed_at = sample.time
            # The totals of an emptied Redis begin at 0 again.
            if last.slots != sample.slots or last.answered > sample.answered:
                self._begin_anew()
        self._samples.append(sample)
        while len(self._samples) > 1 and sample.time - self._samples[1].time >= LONG_S:
            self._samples.popleft()

    def _window(self, seconds: float) -> _Window | None:
        """Return the last seconds; None if the samples do not go back that far."""
        last = self._samples[-1]
        first = next((sample for sample in reversed(self._samples) if last.time - sample.time >= seconds), None)
        return _Window(first, last) if first else None

    def _excess(self, short: _Window, long: _Window | None) -> _Window | None:
        """Return the window in which the requests waited for too long; None if they did not."""
        is_sure = short.is_stalled or short.answered >= _ENOUGH
        if is_sure and short.wait_ms > _FAR_ABOVE * self._target_ms:
            return short
        if long and min(short.wait_ms, long.wait_ms) > self._target_ms:
            return long
        return None

    def _needed(self, slots: int, window: _Window, arrivals: float) -> int:
        """Return the slots for a load: in proportion to the wait, up to twice as many; more if the arrivals need it."""
        needed = min(math.ceil(slots * window.wait_ms / self._target_ms), _MOST_GROWTH * slots)
        if window.answered and window.busy:
            per_slot = window.answered / window.seconds / window.busy
            needed = max(needed, math.ceil(arrivals / per_slot / _BUSY_AFTER_UP))
        return max(needed, slots + 1)

    def _is_calm(self, short: _Window, long: _Window) -> bool:
        """Return True if one slot fewer can do the work."""
        sample, fewer = short.last, short.last.slots - 1
        # A batch that is still computed does not tell yet how busy it keeps its slot.
        if fewer < self._least or short.is_stalled:
            return False
        if max(short.wait_ms, sample.oldest_ms) > _FAR_BELOW * self._target_ms:
            return False
        self._too_much = {
            count: (load, time) for count, (load, time) in self._too_much.items() if sample.time - time < REMEMBER_S
        }
        smallest = min((load for count, (load, _) in self._too_much.items() if count >= fewer), default=math.inf)
        return long.arrivals < _LIKE_BEFORE * smallest and short.busy <= _BUSY_AFTER_DOWN * fewer


def percentile(counts: Sequence[int]) -> float:
    """Return the 95th percentile of a histogram by `LATENCY_BOUNDS_MS`, interpolated; 0 if it counts nothing."""
    rest = _PERCENTILE * sum(counts)
    if not rest:
        return 0.0
    bounds = [0, *LATENCY_BOUNDS_MS, LATENCY_BOUNDS_MS[-1]]
    for count, (lower, upper) in zip(counts, pairwise(bounds), strict=True):
        if rest <= count:
            return lower + (upper - lower) * rest / count
        rest -= count
    return float(bounds[-1])
