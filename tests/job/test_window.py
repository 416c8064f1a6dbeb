"""The batching window beside a source, without Flink."""

import threading

import numpy as np

from cluster_serving.connectors.flink.entry_batch import EntryBatch
from cluster_serving.connectors.slot.failing_clients import FailingClients
from cluster_serving.connectors.slot.flow_control import SlotFlowControl
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.job.options import BatchOptions
from cluster_serving.job.window import BatchingWindow
from cluster_serving.protocol.entry import NATIVE, Entry
from cluster_serving.protocol.errors import DeadlineExceeded
from cluster_serving.protocol.tensors import encode
from tests.support.fixtures.flink_context import Context
from tests.support.fixtures.waiting import wait_until


def entry(uri):
    return Entry(b"1-0", uri, encode({"x": np.zeros(2, "f4")}), NATIVE)


def opened(flow, **options):
    shared = SharedSlot.of("window", 0)
    shared.open(flow)
    window = BatchingWindow(BatchOptions(**options), lingers=True, generation="window")
    window.open(Context())
    return window


def announced(flow, uri):
    """Hand a request over; return the record that announces it to the window, None if the window waits for it."""
    flow.announce(1)
    return None if flow.hand_over([entry(uri)]) else EntryBatch(0, False, flow.id, None).to_bytes()


def uris(batch):
    return [request.entry.uri for request in batch.requests]


def test_a_client_whose_requests_make_batches_fail_has_batches_of_its_own():
    flow = SlotFlowControl(limit=8)
    window = opened(flow)
    flow.apart = failing = FailingClients()
    for _ in range(2):
        failing.blame("bad")
    entries = [entry(uri)._replace(origin=uri.rstrip("0123456789")) for uri in ("good1", "bad1", "other1", "bad2")]
    flow.announce(4)
    flow.hand_over(entries)
    batches = list(window.process_element(EntryBatch(0, False, flow.id, None).to_bytes(), None))
    assert [uris(batch) for batch in batches] == [["good1", "other1"], ["bad1", "bad2"]]


def test_a_window_takes_the_next_requests_from_the_source_itself():
    flow, records = SlotFlowControl(limit=4), []
    window = opened(flow)
    batches = window.process_element(announced(flow, "a"), None)
    assert uris(next(batches)) == ["a"]

    def source():
        wait_until(lambda: flow._awaited)
        records.append(announced(flow, "b"))

    thread = threading.Thread(target=source)
    thread.start()
    assert uris(next(batches)) == ["b"]
    thread.join()
    assert records == [None]
    assert list(batches) == []
    assert announced(flow, "c") is not None


def test_a_window_leaves_requests_to_the_record_that_announces_them():
    flow = SlotFlowControl(limit=4)
    window = opened(flow)
    first = announced(flow, "a")
    batches = window.process_element(first, None)
    assert uris(next(batches)) == ["a"]
    second = announced(flow, "b")
    assert list(batches) == []
    assert [uris(batch) for batch in window.process_element(second, None)] == [["b"]]


def test_a_window_that_waits_for_full_batches_waits_in_flink(monkeypatch):
    monkeypatch.setattr(SlotFlowControl, "wait", None)
    flow = SlotFlowControl(limit=4)
    window = opened(flow, max_batch_size=1, greedy_batching=False)
    batches = window.process_element(announced(flow, "a"), None)
    assert uris(next(batches)) == ["a"]
    assert list(batches) == []


class Late:
    """Deadlines that the requests of these uris have missed."""

    def __init__(self):
        self.uris = set()

    def expired(self, entries):
        return {entry.place: DeadlineExceeded("late") for entry in entries if entry.uri in self.uris}


def numbered(uri):
    return entry(uri)._replace(id=f"{ord(uri)}-0".encode())


def test_what_has_expired_leaves_its_place_in_a_full_batch_to_the_next():
    deadlines = Late()
    flow = SlotFlowControl(limit=8, deadlines=deadlines)
    window = opened(flow, max_batch_size=3)

    def taken(text, more):
        flow.announce(len(text))
        flow.hand_over([numbered(uri) for uri in text])
        return [
            (uris(batch), bool(batch.requests[0].error))
            for batch in window.process_element(EntryBatch(0, more, flow.id, None).to_bytes(), Timers())
        ]

    deadlines.uris = {"a", "c"}
    assert taken("abc", more=True) == [(["a", "c"], True)]
    deadlines.uris = {"d"}
    assert taken("def", more=True) == [(["d"], True), (["b", "e", "f"], False)]
    deadlines.uris = {"g"}
    assert taken("gh", more=False) == [(["g"], True), (["h"], False)]
    deadlines.uris = {"i"}
    assert taken("i", more=False) == [(["i"], True)]


class Timers:
    """Flink's timers, of which none comes."""

    def timer_service(self):
        return self

    def register_processing_time_timer(self, time):
        pass


def column(uri, numbers):
    """An entry of several records."""
    data = encode({"x": np.repeat(np.array(numbers, "f4")[:, None], 2, axis=1)})
    return entry(uri)._replace(id=f"{ord(uri)}-0".encode(), data=data, records=str(len(numbers)).encode())


def test_batches_are_formed_of_records_and_large_entries_are_cut():
    flow = SlotFlowControl(limit=8)
    window = opened(flow, max_batch_size=4)
    flow.announce(3)
    flow.hand_over([column("a", range(6)), numbered("b"), column("c", range(6, 9))])
    batches = list(window.process_element(EntryBatch(0, False, flow.id, None).to_bytes(), None))
    found = [[(request.entry.uri, request.part, request.size) for request in batch.requests] for batch in batches]
    assert found == [[("a", 0, 4)], [("a", 4, 2), ("b", -1, 1), ("c", 0, 1)], [("c", 1, 2)]]
    columns = [request.inputs["x"][:, 0].tolist() for batch in batches for request in batch.requests if request.rows]
    assert columns == [[0, 1, 2, 3], [4, 5], [6], [7, 8]]
