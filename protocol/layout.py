"""Where the numbers lie in an encoded request, so that equal requests need no Arrow call each.

Payloads of one signature that hold only numbers differ in nothing but these: schema, record batch header and offsets
are the same bytes. Both sides therefore take them from a cache, in a third of the time that
building and parsing a record batch takes. A payload that another Arrow library laid out otherwise takes the long way.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


class Layout:
    """The constant parts of a payload, and the places of its numbers.

    Args:
        payload: An encoded payload of the signature.
        columns: Its columns, each one row of binary, whose buffers lie in `payload`.
        payload_buffer: The buffer over `payload` that the columns were read from.
    """

    def __init__(self, payload: bytes, columns: Sequence[pa.Array], payload_buffer: pa.Buffer) -> None:
        data = [column.buffers()[2] for column in columns]
        self.sizes = [buffer.size for buffer in data]
        self.starts = [buffer.address - payload_buffer.address for buffer in data]
        ends = [start + size for start, size in zip(self.starts, self.sizes, strict=True)]
        self._places = [slice(end, start) for end, start in zip([0, *ends], [*self.starts, len(payload)], strict=True)]
        self._constant = [payload[place] for place in self._places]
        self._parts: list[bytes | memoryview] = [b""] * (2 * len(data) + 1)
        self._parts[::2] = self._constant
        self._length = len(payload)

    def fill(self, data: Sequence[memoryview]) -> list[bytes | memoryview]:
        """Parts of the payload with these numbers, a contiguous view of the right size per column."""
        parts = self._parts.copy()
        parts[1::2] = data
        return parts

    def fits(self, payload: bytes) -> bool:
        """Whether a payload is laid out like this."""
        return len(payload) == self._length and [payload[place] for place in self._places] == self._constant
