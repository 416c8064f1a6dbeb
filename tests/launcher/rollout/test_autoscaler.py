"""Decisions of the autoscaler about a simulated queue: Poisson arrivals, equal computations, several slots (M/D/c)."""

import heapq
import random
from bisect import bisect_left
from collections import deque

import pytest

from cluster_serving.launcher.rollout.autoscaler import Autoscaler, Sample, percentile
from cluster_serving.protocol.figures.stats import LATENCY_BOUNDS_MS

TARGET_MS = 100


class SimulatedJob:
    """A job whose requests take equally long, and an autoscaler that is asked once a second."""

    def __init__(self, autoscaler, seconds=0.1, slots=1, records=1):
        self._autoscaler = autoscaler
        self._seconds = seconds
        self._records = records
        self._random = random.Random(0)
        self._now = self._next = 0.0
        self._free = [0.0] * slots
        self._waiting, self._computed = deque(), []
        self._read = 0
        self._answered, self._waits = 0, [0] * (len(LATENCY_BOUNDS_MS) + 1)
        self.stalled = False
        self.slots = [slots]
        self.needed = slots

    def run(self, seconds, rate):
        """Let `rate` requests a second arrive; return the numbers of slots that the job had."""
        first = len(self.slots) - 1
        self._next = max(self._next, self._now)
        for _ in range(seconds):
            self._second(rate)
            decision = self._autoscaler.decide(self._sample())
            if decision is not None:
                self.needed = decision.needed
                if decision.slots != self.slots[-1]:
                    self.slots.append(decision.slots)
                    self._resize(decision.slots)
        return self.slots[first:]

    def _second(self, rate):
        self._now += 1
        while rate and self._next < self._now:
            self._waiting.append(self._next)
            self._next += self._random.expovariate(rate)
        while self._waiting and not self.stalled:
            begin = max(self._free[0], self._waiting[0])
            if begin >= self._now:
                break
            wait_ms = 1000 * (begin - self._waiting.popleft())
            self._read += 1
            heapq.heapreplace(self._free, begin + self._seconds)
            heapq.heappush(self._computed, (begin + self._seconds, wait_ms))
        while self._computed and self._computed[0][0] < self._now:
            self._answered += self._records
            self._waits[bisect_left(LATENCY_BOUNDS_MS, heapq.heappop(self._computed)[1])] += self._records

    def _sample(self):
        return Sample(
            time=self._now,
            slots=self.slots[-1],
            answered=self._answered,
            waits=tuple(self._waits),
            busy_us=round(1e6 * self._seconds * self._answered / self._records),
            queued=len(self._waiting) + len(self._computed),
            oldest_ms=1000 * (self._now - self._waiting[0]) if self._waiting else 0,
            requests_in=self._read,
            records_in=self._records * self._read,
        )

    def _resize(self, slots):
        self._free = sorted([*self._free, *[self._now] * slots][-slots:])


def simulated(least=1, most=8, **options):
    return SimulatedJob(Autoscaler(least, most, TARGET_MS), **options)


def test_a_job_grows_with_the_load_at_once_and_shrinks_step_by_step_after_it():
    job = simulated()
    # Three slots would be busy all the time.
    grown = job.run(120, rate=30)
    assert len(grown) <= 3
    assert 4 <= grown[-1] <= 8
    assert job.run(600, rate=0) == list(range(grown[-1], 0, -1))


@pytest.mark.parametrize("slots", [1, 8])
@pytest.mark.parametrize("rate", [1, 5, 9.9, 18, 37])
def test_a_constant_load_does_not_make_the_number_of_slots_swing(rate, slots):
    job = simulated(slots=slots)
    job.run(900, rate)
    # Chance may raise the number, and it may be tried once if one fewer is enough.
    assert len(job.run(1800, rate)) <= 3
    assert len(job.run(1800, rate)) <= 2


@pytest.mark.parametrize("rate", [5, 12, 25, 50])
def test_what_the_job_has_is_enough(rate):
    job = simulated()
    job.run(600, rate)
    before = list(job._waits)
    job.run(300, rate)
    assert percentile([new - old for old, new in zip(before, job._waits, strict=True)]) <= TARGET_MS


def test_a_queue_of_requests_of_many_records_is_as_much_load_as_their_records():
    small, large = simulated(), simulated(records=256)
    assert large.run(120, rate=30) == small.run(120, rate=30)
    assert large.needed == small.needed


def test_requests_that_nobody_answers_count_by_their_age():
    job = simulated()
    job.stalled = True
    assert job.run(30, rate=5)[-1] > 1


def test_what_has_queued_up_in_an_outage_is_no_load():
    job = simulated(least=2, slots=2)
    assert job.run(60, rate=10) == [2]
    job.stalled = True
    for _ in range(43):
        # Slots do not answer, or Redis does not.
        job._second(10)
        job._autoscaler.pause()
    job.stalled = False
    job._free = [job._now] * 2
    assert job.run(120, rate=10) == [2]


def test_an_outage_that_hides_a_load_is_followed_by_more_slots():
    job = simulated()
    job._autoscaler.pause()
    assert job.run(30, rate=20)[-1] > 1


def test_a_load_above_the_limit_tells_what_it_would_need():
    job = simulated(most=3)
    assert job.run(300, rate=55)[-1] == 3
    assert job.needed >= 6
    assert job.run(60, rate=0)[0] == 3


def test_a_number_outside_of_the_limits_is_corrected_at_once():
    assert simulated(least=2).run(1, rate=0) == [1, 2]
    assert simulated(most=4, slots=6).run(1, rate=0) == [6, 4]


def test_totals_that_begin_anew_are_no_load():
    job = simulated()
    job.run(60, rate=1)
    job._answered, job._waits = 0, [0] * len(job._waits)
    assert job.run(60, rate=1) == [1]


def test_the_percentile_lies_between_the_bounds_of_the_histogram():
    counts = [0] * (len(LATENCY_BOUNDS_MS) + 1)
    assert percentile(counts) == 0
    counts[LATENCY_BOUNDS_MS.index(16)] = 100
    assert 8 < percentile(counts) < 16
    counts[-1] = 100
    assert percentile(counts) == LATENCY_BOUNDS_MS[-1]
