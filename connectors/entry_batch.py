"""How stream entries cross the exchange between source and window: what one read found, as one byte string.

Where both share a process, the entries are in the lane (`connectors.flow_control`), and the chunk only says so: on
their way through Flink, bytes are copied half a dozen times.

A record per request would cost a round trip between Flink and its Python worker each in process mode, and in thread
mode more than all else that the source does for a small request.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cluster_serving.protocol.entry import Entry

_HEAD = struct.Struct("<i?Ii")
_ENTRY = struct.Struct("<9I")


class Chunk(NamedTuple):
    """Entries on their way to the window.

    Attributes:
        lane_key: Flink key that leads to the window subtask of this lane.
        more: The source has found further requests waiting and will hand them over next.
        lane_id: The lane they travel on (see `connectors.flow_control`).
        entries: The requests; None for those that were handed over on the lane. An empty chunk comes first in process
            mode, only to make Flink open the operators behind the source.
    """

    lane_key: int
    more: bool
    lane_id: str
    entries: Sequence[Entry] | None

    def to_bytes(self) -> bytes:
        """Serialize."""
        lane = self.lane_id.encode()
        count = -1 if self.entries is None else len(self.entries)
        parts = [_HEAD.pack(self.lane_key, self.more, len(lane), count), lane]
        for entry in self.entries or ():
            uri, reply_to = (text.encode("utf8", "surrogateescape") for text in (entry.uri, entry.reply_to))
            priority = entry.priority.encode()
            fields = (
                *(entry.id, uri, entry.serde, reply_to, entry.deadline),
                *(priority, entry.reply_with, entry.path, entry.data),
            )
            parts.append(_ENTRY.pack(*map(len, fields)))
            parts.extend(fields)
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Chunk:
        """Read what `to_bytes` wrote."""
        lane_key, more, lane_length, count = _HEAD.unpack_from(raw)
        start = _HEAD.size + lane_length
        lane_id = raw[_HEAD.size : start].decode()
        if count < 0:
            return cls(lane_key, more, lane_id, None)
        entries = []
        for _ in range(count):
            lengths = _ENTRY.unpack_from(raw, start)
            start += _ENTRY.size
            fields = []
            for length in lengths:
                fields.append(raw[start : start + length])
                start += length
            entry_id, uri, serde, reply_to, deadline, priority, reply_with, path, data = fields
            entries.append(
                Entry(
                    entry_id,
                    uri.decode("utf8", "surrogateescape"),
                    data,
                    serde,
                    reply_to.decode("utf8", "surrogateescape"),
                    deadline,
                    priority.decode(),
                    reply_with,
                    path=path,
                )
            )
        return cls(lane_key, more, lane_id, entries)


def lane_key(raw: bytes) -> int:
    """Flink key of a serialized chunk."""
    key: int = struct.unpack_from("<i", raw)[0]
    return key


def by_size(entries: Sequence[Entry], limit: int) -> Iterator[Sequence[Entry]]:
    """Cut entries into runs of at most `limit` payload bytes, or of one entry: no chunk may fill Flink's memory."""
    start = size = 0
    for position, entry in enumerate(entries):
        if position > start and size + len(entry.data) > limit:
            yield entries[start:position]
            start, size = position, 0
        size += len(entry.data)
    if entries:
        yield entries[start:]
