"""Turns of queues by the seconds that they were served for."""

from cluster_serving.job.hosting.turns import Turns


def served(turns, seconds, rounds):
    """Serve queues that always have requests; returns the seconds that each got."""
    got = dict.fromkeys(seconds, 0)
    for name in seconds:
        turns.add(name)
    for _ in range(rounds):
        name = turns.next()
        got[name] += seconds[name]
        turns.spent(name, seconds[name], goes_on=True)
    return got


def test_a_slow_queue_gets_as_many_seconds_as_a_fast_one():
    got = served(Turns(), {"slow": 8, "fast": 1}, 900)
    assert abs(got["slow"] - got["fast"]) <= 8


def test_equals_take_turns():
    turns = Turns()
    order = []
    for name in "abc":
        turns.add(name)
    for _ in range(6):
        order.append(turns.next())
        turns.spent(order[-1], 0.0, goes_on=True)
    assert order == [*"abcabc"]


def test_a_queue_that_was_empty_has_saved_nothing_and_waits_for_one_turn():
    turns = Turns()
    served(turns, {"busy": 1}, 100)
    turns.add("late")
    order = []
    for _ in range(6):
        order.append(turns.next())
        turns.spent(order[-1], 1, goes_on=True)
    assert "late" in order[:2] and order.count("late") == 3


def test_nobody_is_next_where_nothing_waits():
    turns = Turns()
    assert turns.next() is None
    turns.add("a")
    turns.spent("a", 1, goes_on=False)
    assert turns.next() is None and "a" not in turns
    turns.add("a")
    turns.clear()
    assert turns.next() is None
