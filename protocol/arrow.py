"""A check of Arrow messages from untrusted clients that Arrow itself does not make."""

from __future__ import annotations

import struct

from cluster_serving.protocol.errors import InvalidInput

_RECORD_BATCH = 3
_HEADER_TYPE, _HEADER = 1, 2
_COMPRESSION = 3


def refuse_compression(metadata: bytes) -> None:
    """Refuse a compressed record batch, a few bytes of which could decompress to any size.

    `metadata` is the flatbuffer of an Arrow IPC message; damaged metadata is refused too.
    """
    try:
        message = struct.unpack_from("<I", metadata)[0]
        header_type = _field(metadata, message, _HEADER_TYPE)
        if not header_type or metadata[header_type] != _RECORD_BATCH:
            return
        header = _field(metadata, message, _HEADER)
        batch = header + struct.unpack_from("<I", metadata, header)[0]
        compressed = _field(metadata, batch, _COMPRESSION)
    except (struct.error, IndexError):
        raise InvalidInput("the payload is not a readable Arrow IPC stream: a message has damaged metadata") from None
    if compressed:
        raise InvalidInput("the payload is a compressed Arrow IPC stream; send it without compression")


def _field(buffer: bytes, table: int, index: int) -> int:
    """Return the position of a field of a flatbuffer table; 0 if the field is absent."""
    vtable = table - struct.unpack_from("<i", buffer, table)[0]
    if 4 + 2 * index >= struct.unpack_from("<H", buffer, vtable)[0]:
        return 0
    offset: int = struct.unpack_from("<H", buffer, vtable + 4 + 2 * index)[0]
    return table + offset if offset else 0
