"""How a stream entry crosses the exchange between source and window: one byte string.

Flink would otherwise convert and serialize field by field in Python, which costs more than everything else the source
does for a small request.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from cluster_serving.client.protocol import Entry

_HEAD = struct.Struct("<i?5I")


class Record(NamedTuple):
    """A stream entry on its way to the window.

    Attributes:
        lane_key: Flink key that leads to the window subtask of this lane.
        more: The source has found further requests waiting and will hand them over next.
        lane_id: The lane it travels on (see `connectors.lane`).
        entry: The request; None for the first record of a lane in process mode, which only makes Flink open the
            operators behind the source.
    """

    lane_key: int
    more: bool
    lane_id: str
    entry: Entry | None

    def to_bytes(self) -> bytes:
        """Serialize."""
        entry = self.entry or Entry(b"", "", b"")
        fields = (
            self.lane_id.encode(),
            entry.id,
            entry.uri.encode("utf8", "surrogateescape"),
            entry.serde,
            entry.reply_to.encode("utf8", "surrogateescape"),
        )
        return b"".join((_HEAD.pack(self.lane_key, self.more, *map(len, fields)), *fields, entry.data))

    @classmethod
    def from_bytes(cls, raw: bytes) -> Record:
        """Read what `to_bytes` wrote."""
        lane_key, more, *lengths = _HEAD.unpack_from(raw)
        fields, start = [], _HEAD.size
        for length in lengths:
            fields.append(raw[start : start + length])
            start += length
        lane_id, entry_id, uri, serde, reply_to = fields
        if not entry_id:
            return cls(lane_key, more, lane_id.decode(), None)
        entry = Entry(
            entry_id,
            uri.decode("utf8", "surrogateescape"),
            raw[start:],
            serde,
            reply_to.decode("utf8", "surrogateescape"),
        )
        return cls(lane_key, more, lane_id.decode(), entry)


def lane_key(raw: bytes) -> int:
    """Flink key of a serialized record."""
    key: int = struct.unpack_from("<i", raw)[0]
    return key
