"""Flow control of one slot."""

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from cluster_serving.connectors.slot import flow_control
from cluster_serving.connectors.slot.flow_control import SlotFlowControl, Surplus
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.figures.metrics import RECONNECTS
from tests.support.fixtures.waiting import wait_until


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


def test_a_model_that_begins_requests_while_it_computes_others_gets_them_at_once():
    flow = SlotFlowControl(limit=4, pause=60)
    flow.overlaps = True
    flow.announce(2)
    flow.arrive(2)
    assert flow.capacity(0, ahead=False) == 2
    # In the thread of the window, nothing would be read until the others are answered.
    reader = Reader()
    reader.flow.overlaps = True
    reader.hand_over_to_a_window_that_waits()
    assert reader.flow.is_turn(0)


def test_a_window_in_another_process_does_not_hold_the_source_back():
    flow = SlotFlowControl(limit=4)
    flow.announce(100)
    assert flow.capacity(0, ahead=True) == flow.capacity(0, ahead=False) == 4


def test_the_source_can_wait_until_a_window_has_attached():
    flow = SlotFlowControl(limit=4)
    assert not flow.wait_attached(0)
    threading.Timer(0.05, flow.arrive, [0]).start()
    assert flow.wait_attached(10)


def test_the_arrival_of_the_last_announced_request_says_that_no_more_come():
    flow = SlotFlowControl(limit=10)
    flow.announce(3)
    assert [flow.arrive(1), flow.arrive(2)] == [True, False]


def test_a_flow_control_is_found_for_as_long_as_its_source_lives():
    shared, flow = SharedSlot.of("job-1", 0), SlotFlowControl(limit=1)
    shared.open(flow)
    assert SharedSlot.of("job-1", 0).flow(flow.id) is flow
    flow_id = flow.id
    del flow
    assert shared.flow(flow_id) is None


def test_functions_of_an_attempt_that_was_replaced_do_not_find_the_flow_control_of_the_next():
    shared, (first, second) = SharedSlot.of("job-1", 0), (SlotFlowControl(limit=1) for _ in range(2))
    shared.open(first)
    shared.open(second)
    assert shared.flow(first.id) is None
    assert shared.flow(second.id) is second


def test_what_a_slot_shares_is_its_own_and_lives_for_as_long_as_one_of_its_functions():
    slot, beside, other = SharedSlot.of("job-1", 0), SharedSlot.of("job-1", 1), SharedSlot.of("job-2", 0)
    slot.counts.add(RECONNECTS)
    assert SharedSlot.of("job-1", 0) is slot
    assert slot.surplus is beside.surplus is not other.surplus
    assert slot.ticks is not beside.ticks and slot.counts is not beside.counts
    del slot
    assert SharedSlot.of("job-1", 0).counts.take() == {}


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
    own = Surplus()
    stalled, other, foreign = (SlotFlowControl(4, surplus=surplus) for surplus in (own, own, None))
    assert not stalled.take_back()
    for entry in (first, second):
        stalled.announce(1)
        stalled.hand_over([entry])
    assert stalled.take() == [first]
    stalled.arrive(1)
    assert stalled.take_back()
    assert (foreign.surplus.take(5), other.surplus.take(5), stalled.surplus.take(5)) == ([], [second], [])
    assert list(stalled.take()) == []
    assert not stalled.arrive(0)
    stalled.answer(1)
    assert not stalled.take_back()


def test_a_stalled_slot_whose_model_overlaps_keeps_the_next_requests(monkeypatch):
    """With them the window comes back to the model, which may have left the answers of a batch until then."""
    monkeypatch.setattr(flow_control, "_STALLED", 0.0)
    entries = [Entry(b"%d-0" % number, "a", b"") for number in range(3)]
    flow = SlotFlowControl(4)
    flow.overlaps = True
    for entry in entries:
        flow.announce(1)
        flow.hand_over([entry])
    assert flow.take() == entries[:1]
    flow.arrive(1)
    assert flow.take_back()
    assert flow.surplus.take(5) == entries[2:]
    assert flow.more
    assert list(flow.take()) == entries[1:2]
    assert not flow.arrive(1)
    assert list(flow.take()) == []


def test_a_slot_whose_batches_always_take_long_is_not_stalled(monkeypatch):
    monkeypatch.setattr(flow_control, "_STALLED", 0.0)
    flow = SlotFlowControl(4)
    flow.announce(2)
    flow.arrive(2)
    time.sleep(0.2)
    flow.answer(1)
    assert not flow.take_back()


class Reader:
    """What a source lends: it reads one request at a time, as long as there are any."""

    def __init__(self, seconds=0.0001):
        self.waiting = []
        self.flow = SlotFlowControl(limit=4, read=self.read)
        self.flow.announce(1)
        self.flow.arrive(1)
        self.flow.answer(1)
        # As a clock would tell if nothing else ran.
        self.flow.seconds_per_request = seconds

    def read(self, timeout):
        if not self.waiting:
            return []
        self.flow.announce(1)
        return [self.waiting.pop(0)]

    def hand_over_to_a_window_that_waits(self):
        entry = Entry(b"1-0", "", b"")

        def hand_over():
            wait_until(lambda: self.flow._awaited)
            self.flow.announce(1)
            assert self.flow.hand_over([entry])

        source = threading.Thread(target=hand_over)
        source.start()
        assert self.flow.wait(10) == [entry]
        source.join()
        self.flow.arrive(1)


def test_a_window_with_a_fast_model_reads_by_itself_after_a_hand_over(monkeypatch):
    monkeypatch.setattr(flow_control, "_LATE", 60)
    reader = Reader()
    flow = reader.flow
    assert flow.is_turn(0)
    reader.hand_over_to_a_window_that_waits()
    flow.answer(1)
    assert not flow.is_turn(0)
    reader.waiting = [Entry(b"2-0", "", b""), Entry(b"3-0", "", b"")]
    for number in (b"2-0", b"3-0"):
        (entry,) = flow.wait(10)
        assert entry.id == number
        flow.arrive(1)
        assert not flow.is_turn(0)
        flow.answer(1)


def test_the_source_reads_again_when_the_window_has_found_nothing():
    reader = Reader()
    reader.hand_over_to_a_window_that_waits()
    reader.flow.answer(1)
    with ThreadPoolExecutor(1) as threads:
        turn = threads.submit(reader.flow.is_turn, 10)
        assert reader.flow.wait(10) is None
        assert turn.result()


def test_the_source_reads_again_when_the_window_has_returned_to_flink():
    reader = Reader()
    reader.hand_over_to_a_window_that_waits()
    reader.flow.answer(1)
    assert not reader.flow.is_turn(0)
    reader.flow.give_back()
    assert reader.flow.is_turn(0)


def test_the_source_reads_again_while_the_window_computes_a_batch_that_takes_long(monkeypatch):
    monkeypatch.setattr(flow_control, "_LATE", 60)
    reader = Reader()
    reader.hand_over_to_a_window_that_waits()
    assert not reader.flow.is_turn(0)
    monkeypatch.setattr(flow_control, "_LATE", 0)
    assert reader.flow.is_turn(0)
    reader.waiting = [Entry(b"2-0", "", b"")]
    reader.flow.answer(1)
    # The window takes what the source hands over again.
    assert reader.flow.wait(0) is None
    assert reader.waiting


def test_a_window_with_a_slow_model_leaves_the_reading_to_the_source():
    reader = Reader(seconds=0.01)
    reader.hand_over_to_a_window_that_waits()
    assert reader.flow.is_turn(0)


def test_a_flow_control_does_not_keep_its_source():
    reader = Reader()
    reader.hand_over_to_a_window_that_waits()
    flow = reader.flow
    flow.answer(1)
    del reader
    assert flow.wait(0) is None
