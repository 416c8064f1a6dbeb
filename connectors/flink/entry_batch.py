"""Entry batches: the records between source and window, each with the entries of one read.

A record per request would cost process mode a round trip between Flink and its Python worker each. In thread mode it
would cost more than all other work of the source for a small request.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.keys import to_bytes, to_text

_HEAD = struct.Struct("<i?Ii")
_ENTRY = struct.Struct("<16I")


class EntryBatch(NamedTuple):
    """Entries on their way from source to window.

    Attributes:
        slot_key: Flink key that leads to the window in the slot of the source.
        more: True if the source has read further requests and hands them over next.
        flow_id: Id of the slot's `SlotFlowControl`.
        entries: The requests; None if the source handed them over through the flow control, which saves half a dozen
            copies of their bytes in Flink. In process mode an empty batch comes first, so that Flink opens the
            operators behind the source.
    """

    slot_key: int
    more: bool
    flow_id: str
    entries: Sequence[Entry] | None

    def to_bytes(self) -> bytes:
        """Serialize the batch."""
        flow = self.flow_id.encode()
        count = -1 if self.entries is None else len(self.entries)
        parts = [_HEAD.pack(self.slot_key, self.more, len(flow), count), flow]
        for entry in self.entries or ():
            fields = (
                *(entry.id, to_bytes(entry.uri), entry.data, entry.serde, to_bytes(entry.reply_to)),
                *(entry.deadline, entry.priority.encode(), entry.reply_with, entry.path, to_bytes(entry.version)),
                *(entry.shadow, to_bytes(entry.origin), entry.records, entry.one_by_one, entry.traceparent),
                entry.counted,
            )
            parts.append(_ENTRY.pack(*map(len, fields)))
            parts.extend(fields)
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, raw: bytes) -> EntryBatch:
        """Read what `to_bytes` wrote."""
        slot_key, more, flow_length, count = _HEAD.unpack_from(raw)
        start = _HEAD.size + flow_length
        flow_id = raw[_HEAD.size : start].decode()
        if count < 0:
            return cls(slot_key, more, flow_id, None)
        entries = []
        for _ in range(count):
            lengths = _ENTRY.unpack_from(raw, start)
            start += _ENTRY.size
            fields = []
            for length in lengths:
                fields.append(raw[start : start + length])
                start += length
            entry_id, uri, data, serde, reply_to, deadline, priority, reply_with, path, version, *others = fields
            shadow, origin, records, one_by_one, traceparent, counted = others
            entries.append(
                Entry(
                    *(entry_id, to_text(uri), data, serde, to_text(reply_to)),
                    *(deadline, priority.decode(), reply_with),
                    path=path,
                    version=to_text(version),
                    shadow=shadow,
                    origin=to_text(origin),
                    records=records,
                    one_by_one=one_by_one,
                    traceparent=traceparent,
                    counted=counted,
                )
            )
        return cls(slot_key, more, flow_id, entries)
