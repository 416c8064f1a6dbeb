import math
from itertools import pairwise, takewhile

import numpy as np
import pytest

from cluster_serving.bench.load.stats import Latency, is_stable, poisson_arrivals, ratio


def test_percentiles_are_latencies_that_were_measured():
    latency = Latency.of(np.arange(1, 101) / 1000)
    assert (latency.p50, latency.p95, latency.p99, latency.max) == (51, 96, 100, 100)
    assert latency.mean == pytest.approx(50.5)


def test_a_single_slow_request_of_a_hundred_is_the_p99():
    assert Latency.of(np.array([0.001] * 99 + [1.0])).p99 == 1000


def test_nothing_measured_has_no_latency():
    assert math.isnan(Latency.of(np.empty(0)).p50)


@pytest.mark.parametrize(
    ("rates", "stable"),
    [
        ([100, 100], False),
        ([100, 105, 95], True),
        ([100, 100, 125], False),
        ([10, 500, 100, 102, 98], True),
        ([0, 0, 0], False),
        ([100, 0, 100], False),
    ],
)
def test_three_windows_within_ten_percent_are_stable(rates, stable):
    assert is_stable(rates) is stable


def test_arrivals_are_poisson():
    times = list(takewhile(lambda time: time < 100, poisson_arrivals(200, seed=1)))
    gaps = np.array([b - a for a, b in pairwise(times)])
    assert len(times) == pytest.approx(20_000, rel=0.05)
    assert gaps.min() >= 0
    # Exponential gaps: their deviation equals their mean.
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)


def test_the_same_seed_gives_the_same_arrivals_and_another_seed_others():
    first = [next(poisson_arrivals(10, seed)) for seed in (1, 1, 2)]
    assert first[0] == first[1] != first[2]


def test_a_ratio_pairs_rounds():
    assert ratio([10, 20, 30], [10, 10, 10]) == {"median": 2, "low": 1, "high": 3, "rounds": 3}


def test_rounds_in_which_nothing_was_measured_have_no_ratio():
    assert ratio([10, 0], [0, 10]) is None
