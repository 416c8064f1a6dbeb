"""Dead letters: entries of the stream `<jobName>:dead` with requests that were given up."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from cluster_serving.protocol.encodings import IMAGE
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.keys import NORMAL, to_bytes, to_text

MAX_PAYLOAD_BYTES = 1 << 20
"""Size limit of a payload that is kept, so that a broken model cannot fill Redis."""

MAX_DEAD_LETTERS = 1000
"""Most dead letters of a job; new ones replace the oldest."""


@dataclass(frozen=True)
class DeadLetter:
    """A request that was given up.

    Attributes:
        request: The request. `id` is that of its former stream entry; `data` is empty if the payload was too large.
        size: Size of the payload in bytes, kept or not.
        code: Code of the error that the client got.
        error: Message of that error.
        time: Time of giving the request up, in seconds since the epoch.
        traceback: Last known Python traceback of an attempt; empty if there is none.
    """

    request: Entry
    size: int
    code: str
    error: str
    time: float
    traceback: str = ""

    @classmethod
    def of(cls, request: Entry, error: ServingError, traceback: str = "") -> DeadLetter:
        """Return the dead letter of a request that is given up now."""
        # Both may quote a text of the request that is no Unicode.
        shown = traceback.encode("utf8", "backslashreplace").decode()
        return cls(request, len(request.data), error.code, error.message, time.time(), shown)

    @property
    def kept(self) -> bool:
        """True if the payload was kept, so that the request can be queued again."""
        return len(self.request.data) == self.size

    def fields(self) -> dict[str, str | bytes | int | float]:
        """Return the fields of the stream entry."""
        request = self.request
        return {
            "uri": to_bytes(request.uri),
            "data": request.data if len(request.data) <= MAX_PAYLOAD_BYTES else b"",
            "bytes": self.size,
            "serde": request.serde,
            "reply_to": to_bytes(request.reply_to),
            "priority": request.priority,
            "deadline": request.deadline,
            "version": to_bytes(request.version),
            "entry": request.id,
            "code": self.code,
            "error": to_bytes(self.error),
            "time": self.time,
            "traceback": to_bytes(self.traceback),
            **({"records": request.records} if request.records else {}),
        }

    @classmethod
    def parse(cls, fields: Mapping[bytes, bytes]) -> DeadLetter:
        """Read a stream entry; fields that another writer has left out get defaults."""
        data = fields.get(b"data", b"")
        request = Entry(
            fields.get(b"entry", b""),
            to_text(fields.get(b"uri", b"")),
            data,
            fields.get(b"serde", b""),
            to_text(fields.get(b"reply_to", b"")),
            deadline=fields.get(b"deadline", b""),
            priority=to_text(fields.get(b"priority", NORMAL.encode())),
            version=to_text(fields.get(b"version", b"")),
            records=fields.get(b"records", b""),
        )
        return cls(
            request,
            int(fields.get(b"bytes", len(data))),
            to_text(fields.get(b"code", b"")),
            to_text(fields.get(b"error", b"")),
            float(fields.get(b"time", 0)),
            to_text(fields.get(b"traceback", b"")),
        )

    def request_fields(self) -> dict[str, str | bytes]:
        """Return the fields of the stream entry that queues the request again, as its client wrote them.

        But for `reply_with`: the answer goes to the hash of the result, where it is found later.
        """
        request = self.request
        if request.serde == IMAGE:
            return {"uri": to_bytes(request.uri), "image": request.data}
        optional = {
            "serde": request.serde,
            "reply_to": to_bytes(request.reply_to),
            "deadline": request.deadline,
            "version": to_bytes(request.version),
            "records": request.records,
        }
        given = {name: value for name, value in optional.items() if value}
        return {"uri": to_bytes(request.uri), "data": request.data, **given}
