"""Flow control of one slot."""

import queue
import threading
import time

from cluster_serving.connectors import flow_control
from cluster_serving.connectors.flow_control import SlotFlowControl, find_flow_control
from cluster_serving.protocol.entry import Entry
from tests.support.waiting import wait_until


def test_the_source_is_held_back_until_the_sink_has_answered():
    flow = SlotFlowControl(limit=4)
    flow.announce(4)
    assert flow.arrive(1)
    assert flow.capacity(0, ahead=True) == 0
    threading.Timer(0.05, flow.answer, [3]).start()
    assert flow.capacity(10, ahead=True) == 3


def test_a_source_that_does_not_read_ahead_waits_until_all_is_answered():
    flow = SlotFlowControl(limit=4, pause=60)
    assert flow.capacity(0, ahead=False) == 4
    flow.announce(2)
    flow.arrive(2)
    flow.answer(1)
    assert flow.capacity(0, ahead=True) == 3
    threading.Timer(0.05, flow.answer, [1]).start()
    assert flow.capacity(10, ahead=False) == 4


def test_a_source_that_does_not_read_ahead_waits_no_longer_than_the_pause():
    flow = SlotFlowControl(limit=4, pause=0.01)
    flow.announce(3)
    flow.arrive(3)
    assert flow.capacity(10, ahead=False) == 1


def test_a_window_in_another_process_does_not_hold_the_source_back():
    flow = SlotFlowControl(limit=4)
    flow.announce(100)
    assert flow.capacity(0, ahead=True) == flow.capacity(0, ahead=False) == 4


def test_the_arrival_of_the_last_announced_request_says_that_no_more_come():
    flow = SlotFlowControl(limit=10)
    flow.announce(3)
    assert [flow.arrive(1), flow.arrive(2)] == [True, False]


def test_a_flow_control_is_found_for_as_long_as_its_source_lives():
    flow = SlotFlowControl(limit=1)
    assert find_flow_control(flow.id) is flow
    flow_id = flow.id
    del flow
    assert find_flow_control(flow_id) is None


def test_the_source_can_wait_until_everything_is_answered():
    flow = SlotFlowControl(limit=4)
    assert flow.wait_idle(0)
    flow.announce(1)
    flow.arrive(1)
    assert not flow.wait_idle(0)
    threading.Timer(0.05, flow.answer, [1]).start()
    assert flow.wait_idle(10)


def test_a_flow_control_knows_how_long_requests_take():
    flow = SlotFlowControl(limit=4)
    flow.announce(2)
    flow.arrive(2)
    assert flow.seconds_per_request == 0
    assert flow.unanswered == 2
    time.sleep(0.02)
    flow.announce(2)  # while others are computed, which is not when these begin
    flow.arrive(2)
    flow.answer(2)
    first = flow.seconds_per_request
    flow.answer(2)
    assert first >= 0.01 > flow.seconds_per_request > 0
    assert flow.unanswered == 0


def test_requests_are_taken_in_the_order_in_which_they_were_handed_over():
    flow = SlotFlowControl(limit=4)
    assert not flow.attached
    flow.announce(1)
    flow.arrive(1)
    assert flow.attached
    requests = [[Entry(b"%d-0" % number, "", b"")] for number in range(2)]
    for entries in requests:
        flow.hand_over(entries)
    assert [flow.take(), flow.take()] == requests


def test_a_window_that_waits_gets_requests_without_a_record():
    flow, requests = SlotFlowControl(limit=4), [Entry(b"1-0", "", b"")]
    told = []

    def hand_over():
        wait_until(lambda: flow._awaited)
        told.append(flow.hand_over(requests))

    assert flow.wait(0) is None
    source = threading.Thread(target=hand_over)
    source.start()
    assert flow.wait(10) == requests
    source.join()
    assert told == [True]


def test_a_window_does_not_wait_for_requests_that_a_record_announces():
    flow, requests = SlotFlowControl(limit=4), [Entry(b"1-0", "", b"")]
    assert not flow.hand_over(requests)
    assert flow.wait(10) is None
    assert flow.take() == requests


def test_each_hand_over_is_taken_once_by_a_window_that_waits_now_and_then():
    flow, taken, records = SlotFlowControl(limit=4), [], queue.SimpleQueue()
    expected = [Entry(b"%d-0" % number, "", b"") for number in range(2000)]

    def hand_over():
        for entry in expected:
            if not flow.hand_over([entry]):
                records.put("record")
        records.put("end")

    source = threading.Thread(target=hand_over)
    source.start()
    while records.get() != "end":
        taken += flow.take()
        while (entries := flow.wait(0.001)) is not None:
            taken += entries
    source.join()
    assert taken == expected


def test_a_slot_that_is_stalled_leaves_what_it_has_not_begun_to_the_others_of_its_job(monkeypatch):
    monkeypatch.setattr(flow_control, "_STALLED", 0.0)
    first, second = Entry(b"1-0", "a", b""), Entry(b"2-0", "b", b"")
    stalled, other, stranger = (SlotFlowControl(4, generation=name) for name in ("one", "one", "another"))
    assert not stalled.take_back()
    for entry in (first, second):
        stalled.announce(1)
        stalled.hand_over([entry])
    assert stalled.take() == [first]
    stalled.arrive(1)
    assert stalled.take_back()
    assert (stranger.surplus.take(5), other.surplus.take(5), stalled.surplus.take(5)) == ([], [second], [])
    assert list(stalled.take()) == []
    assert not stalled.arrive(0)
    stalled.answer(1)
    assert not stalled.take_back()


def test_a_slot_whose_batches_always_take_long_is_not_stalled(monkeypatch):
    monkeypatch.setattr(flow_control, "_STALLED", 0.0)
    flow = SlotFlowControl(4)
    flow.announce(2)
    flow.arrive(2)
    time.sleep(0.2)
    flow.answer(1)
    assert not flow.take_back()
