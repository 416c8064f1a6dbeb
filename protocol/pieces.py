"""Answers in pieces: the Redis stream `<jobName>:pieces:<uri>` of one answer.

The id of a piece is `<attempt>-<number>`, both from 1, and its fields are those of a result. A request that begins
anew, because the process that computed it is gone, has another attempt, which the entry `<attempt>-0` announces. The
last entry ends the answer: it has the error if the request failed, and the whole result if there are no pieces. So a
client that knows the id of its last piece can go on there, also over another connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.results import Fields
from cluster_serving.protocol.scripts import READ_PIECES, Call, fields_of

END = "end"
"""Field of the last entry."""

RESTARTED = "restarted"
"""Field of an entry that announces another attempt; all pieces before it are void."""

BEGINNING = "0-0"
"""Id before the first piece."""


_ID = re.compile("[0-9]{1,18}-[0-9]{1,18}")


class Piece(NamedTuple):
    """One entry of the stream.

    Attributes:
        id: Entry id.
        fields: Fields of a result; of a piece, or of an error.
        restarted: True if all pieces so far are void; there are no fields then.
        ends: True for the last entry; without fields it only ends the answer.
    """

    id: str
    fields: Fields
    restarted: bool = False
    ends: bool = False


def is_id(text: object) -> bool:
    """Return True for the id of a piece."""
    return isinstance(text, str) and bool(_ID.fullmatch(text))


def read_call(job: str, uri: str, after: str = BEGINNING) -> Call:
    """Return the call that reads the pieces of an answer after the one of that id; see `read_reply`."""
    return Call(READ_PIECES, [JobKeys(job).pieces(uri)], [after])


def read_reply(reply: Sequence[tuple[bytes, Sequence[bytes]]]) -> Iterator[Piece]:
    """Yield the pieces in a reply to `read_call`."""
    for entry_id, values in reply:
        fields = fields_of(values)
        restarted = fields.pop(RESTARTED.encode(), None) is not None
        ends = fields.pop(END.encode(), None) is not None
        yield Piece(entry_id.decode(), fields, restarted, ends)
