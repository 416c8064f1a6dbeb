"""Entry batches, as they pass through Flink."""

from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.connectors.flink.entry_batch import EntryBatch
from cluster_serving.connectors.flink.slot_keys import slot_key
from cluster_serving.connectors.slot.reading import by_size
from cluster_serving.protocol.entry import Entry

entries = st.builds(
    Entry,
    *(st.binary(min_size=1), st.text(), st.binary(), st.binary(), st.text(), st.binary(), st.text()),
    reply_with=st.binary(),
    # The path of the file crosses to the window, not the client's name for it.
    file=st.just(b""),
    path=st.binary(),
    version=st.text(),
    shadow=st.binary(),
    origin=st.text(),
    records=st.binary(),
    one_by_one=st.binary(),
    counted=st.binary(),
)


@given(st.integers(-(2**31), 2**31 - 1), st.booleans(), st.text(), st.none() | st.lists(entries, max_size=4))
def test_an_entry_batch_survives(key, more, flow_id, requests):
    batch = EntryBatch(key, more, flow_id, requests)
    raw = batch.to_bytes()
    assert EntryBatch.from_bytes(raw) == batch
    assert slot_key(raw) == key


@given(st.lists(st.integers(0, 30), max_size=20))
def test_entries_are_cut_by_size_without_losing_an_entry(sizes):
    requests = [Entry(b"1-0", str(index), b"x" * size) for index, size in enumerate(sizes)]
    runs = list(by_size(requests, limit=50))
    assert [entry for run in runs for entry in run] == requests
    assert all(len(run) == 1 or sum(len(entry.data) for entry in run) <= 50 for run in runs)
