"""Records on the exchange."""

from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.client.protocol import Entry
from cluster_serving.connectors.record import Record, lane_key

entries = st.builds(Entry, st.binary(min_size=1), st.text(), st.binary(), st.binary(), st.text())


@given(st.integers(-(2**31), 2**31 - 1), st.booleans(), st.text(), entries | st.none())
def test_a_record_survives(key, more, lane_id, entry):
    record = Record(key, more, lane_id, entry)
    raw = record.to_bytes()
    assert Record.from_bytes(raw) == record
    assert lane_key(raw) == key
