"""How reads are shared among priorities."""

import pytest

from cluster_serving.connectors.stream import WEIGHTS, WeightedRoundRobin


@pytest.mark.parametrize("count", [1, 2, 7, 16, 100])
def test_over_time_each_gets_its_weight_however_many_are_read_at_once(count):
    shares = WeightedRoundRobin()
    got = dict.fromkeys(WEIGHTS, 0)
    for _ in range(16 * 10):
        part = shares.divide(count)
        assert sum(part.values()) == count
        for name, number in part.items():
            got[name] += number
    assert got == {name: weight * 10 * count for name, weight in WEIGHTS.items()}


def test_no_one_waits_for_long():
    shares = WeightedRoundRobin()
    turns = [max(part, key=part.get) for part in (shares.divide(1) for _ in range(32))]
    assert turns.count("low") == 2
    assert turns[0] == "high"
    assert "normal" in turns[:4]
