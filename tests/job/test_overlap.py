"""Overlap of two batches: order and time of the waits."""

import threading

import pytest

from cluster_serving.connectors.slot.flow_control import SlotFlowControl
from cluster_serving.job.overlap import Overlap
from cluster_serving.job.request import Request
from cluster_serving.protocol.entry import Entry


class Running:
    """A batch that is computed once `done` is set."""

    def __init__(self, requests, alone):
        self.names = [request.entry.uri for request in requests]
        self.alone = alone
        self.done = threading.Event()

    def wait(self, seconds):
        return self.done.wait(seconds)


@pytest.fixture
def flow():
    flow = SlotFlowControl(limit=100, pause=0)
    flow.arrive(0)
    return flow


@pytest.fixture
def begun():
    return []


@pytest.fixture
def overlap(begun):
    def begin(requests, alone):
        begun.append(Running(requests, alone))
        return begun[-1]

    return Overlap(begin, threads=2)


def requests(names):
    return [Request(Entry(b"1-0", name, b""), {}) for name in names]


def test_a_batch_that_is_all_there_is_runs_in_halves(overlap, begun, flow):
    batches = overlap.feed(requests("abcde"), flow)
    threading.Timer(0.05, lambda: begun[1].done.set()).start()
    assert next(batches).names == ["a", "b"]
    assert [running.names for running in begun] == [["a", "b"], ["c", "d", "e"]]
    assert next(batches) is begun[1]
    assert begun[1].done.is_set()
    assert list(batches) == []
    assert [running.alone for running in begun] == [True, False]


@pytest.mark.parametrize("names", ["a", "abc"])
def test_a_small_batch_is_not_divided(overlap, begun, flow, names):
    threading.Timer(0.02, lambda: begun[0].done.set()).start()
    (running,) = overlap.feed(requests(names), flow)
    assert running.names == list(names)
    assert running.done.is_set()


def test_a_batch_is_left_alone_while_another_is_on_its_way(overlap, begun, flow):
    flow.announce(3)
    assert list(overlap.feed(requests("abcdef"), flow)) == []
    assert [running.names for running in begun] == [list("abcdef")], "not divided: there is more to do"
    flow.arrive(3)
    batches = overlap.feed(requests("xyz"), flow)
    # The second batch is started before the wait for the first.
    assert next(batches) is begun[0]
    assert [running.names for running in begun] == [list("abcdef"), list("xyz")]
    begun[1].done.set()
    assert next(batches) is begun[1]
    assert list(batches) == []


def test_requests_that_come_while_a_batch_is_computed_are_started_first(overlap, begun, flow):
    threading.Timer(0.05, lambda: flow.announce(1)).start()
    assert list(overlap.feed(requests("ab"), flow)) == []
    flow.arrive(1)
    begun[0].done.set()
    threading.Timer(0.02, lambda: begun[1].done.set()).start()
    assert [running.names for running in overlap.feed(requests("c"), flow)] == [["a", "b"], ["c"]]


def test_without_flow_control_every_batch_is_waited_for(overlap, begun):
    assert [running.names for running in overlap.feed(requests("abcdefgh"), None)] == [list("abcdefgh")]
    assert [running.names for running in overlap.feed(requests("x"), None)] == [["x"]]
