"""Stream entries: requests in Redis.

Several encodings share one stream. The field `serde` of an entry names its encoding: `arrow` is ours (`tensors`),
`stream` is the original's JSON (`original.json`), and an entry without the field is the original's base64 Arrow
(`original.arrow`). A result has our encoding if its request had, else the original's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

from cluster_serving.protocol import tensors
from cluster_serving.protocol.encodings import DECODERS
from cluster_serving.protocol.errors import InvalidInput, PoisonRequest, ServingError
from cluster_serving.protocol.inputs import Input
from cluster_serving.protocol.keys import NORMAL, to_bytes, to_text
from cluster_serving.protocol.signature import Signature, signature

MAX_URI_BYTES = 4096
"""Length limit of a uri, as UTF-8, since the uri becomes part of a Redis key."""

_MAX_ANSWERED_URI_BYTES = 1 << 16

NATIVE = b"arrow"
"""Value of the field `serde` for our own encoding."""

RESULT = b"result"
"""Value of the field `reply_with` of a client that wants the result itself announced, not only the uri."""

MOST_RECORDS = 4096
"""Most records of an entry; each is an object of the job, however few bytes it has."""

PIECES = b"pieces"
"""Value of the field `reply_with` of a client that wants the answer in pieces (`protocol.pieces`)."""

_MAX_TRACEPARENT_BYTES = 55  # of version 00; those of later versions may be longer
_MAX_DEADLINE_DIGITS = 15
_MAX_ORIGIN_BYTES = 64
_MAX_COUNTED_BYTES = 1024
_MAX_RECORDS_DIGITS = 8
_MOST_SHOWN = 200


def client_of(origin: str, reply_to: str) -> str:
    """Return the name of the caller or process that has sent a request; see `Entry.client`."""
    return origin or reply_to.rpartition("|")[2].partition(".")[0]


class Entry(NamedTuple):
    """One entry of the stream.

    Attributes:
        id: Entry id from Redis.
        uri: The client's name for the request.
        data: Encoded inputs.
        serde: Field `serde`; empty for the original's encoding.
        deadline: Milliseconds that the request may wait, in digits, "0" for no limit; empty for the job's default.
        reply_to: Channel of the announcement of the result; empty for the channel named like the result key.
        reply_with: Content of the announcement: `RESULT` for the result, empty for the uri; or `PIECES`.
        priority: Priority of the stream that the entry is in (`protocol.keys`).
        file: Name of the file with the inputs (`protocol.payloads.files`), as the client gave it; else empty.
        path: Path of that file, once it is known to be in the folder of the job.
        version: Version of the model that is to answer; empty for any.
        shadow: Number of the shadow that computes a copy of the request, in digits; empty for none.
        records: Number of the records in the inputs, in digits (`protocol.columns`); empty for one without a column.
        origin: Short name of the front end's caller that has sent the request; empty for none.
        one_by_one: Not empty if the records are computed one by one, after a crash: JSON of index and message of those
            that are given up.
        traceparent: Span that has sent the request (`protocol.traces.trace`), if its trace is sampled; else empty.
        counted: Names of the inputs whose tokens the job counts (`token_counts`), as a JSON list; else empty.
    """

    id: bytes
    uri: str
    data: bytes
    serde: bytes = b""
    reply_to: str = ""
    deadline: bytes = b""
    priority: str = NORMAL
    reply_with: bytes = b""
    file: bytes = b""
    path: bytes = b""
    version: str = ""
    shadow: bytes = b""
    origin: str = ""
    records: bytes = b""
    one_by_one: bytes = b""
    traceparent: bytes = b""
    counted: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of the entry in the memory of the job."""
        return len(self.data) + len(self.uri) + len(self.serde) + len(self.reply_to)

    @property
    def native(self) -> bool:
        """True if request and result use our own encoding."""
        return self.serde == NATIVE

    @property
    def record_count(self) -> int:
        """Number of records; 1 if it cannot be read, since the entry is refused as a whole."""
        return _records_in(self.records) or 1

    @property
    def given_up(self) -> dict[int, PoisonRequest]:
        """Errors of the records that are given up, by index."""
        messages = json.loads(self.one_by_one) if self.one_by_one else {}
        return {int(index): PoisonRequest(message) for index, message in messages.items()}

    def of_record(self, index: int, inputs: Mapping[str, Input]) -> Entry:
        """Return a record as if it were all of the entry, for a dead letter; its uri is that of the record."""
        return self._replace(uri=f"{self.uri}#{index}", data=tensors.encode(inputs), records=b"")

    @property
    def client(self) -> str:
        """Name of the caller or process that has sent the request; original clients share the empty one."""
        return client_of(self.origin, self.reply_to)

    @property
    def shown_uri(self) -> str:
        """The uri as logs and traces show it: cut, and escaped, since clients choose it."""
        return quote(self.uri[:_MOST_SHOWN], "/:@+=,", errors="backslashreplace")

    @property
    def in_pieces(self) -> bool:
        """True if the client wants the answer in pieces."""
        return self.reply_with == PIECES

    @property
    def place(self) -> tuple[str, bytes]:
        """Priority and id, which no other request of the job has."""
        return self.priority, self.id

    @property
    def queued_ms(self) -> int:
        """Time at which Redis took the request, by the clock of Redis: milliseconds since the epoch."""
        return int(self.id.partition(b"-")[0])

    def decode(self) -> tuple[Signature, dict[str, Input]]:
        """Decode the inputs; an `InvalidInput` says at what place they cannot be read."""
        if not 0 < (size := len(to_bytes(self.uri))) <= MAX_URI_BYTES:
            # Original clients send any uri.
            raise InvalidInput(f"the uri has {size} bytes; expected 1 to {MAX_URI_BYTES}")
        if self.deadline and not (self.deadline.isdigit() and len(self.deadline) <= _MAX_DEADLINE_DIGITS):
            raise InvalidInput(
                f"field 'deadline' is {self.deadline[:32]!r}; expected milliseconds, in at most 15 digits"
            )
        if self.records:
            self._check_records()
        if not self.data:
            raise InvalidInput("field 'data' is missing or empty; expected an Arrow IPC stream")
        try:
            return self._decode()
        except ServingError:
            raise
        except Exception as error:
            # Any other error of Arrow or numpy is also caused by this payload, so only its sender gets an error.
            raise InvalidInput(f"the payload cannot be read: {type(error).__name__}: {error}") from error

    def _check_records(self) -> None:
        if not _records_in(self.records):
            raise InvalidInput(f"field 'records' is {self.records!r}; expected a number from 1 to {MOST_RECORDS}")
        if not self.native or self.in_pieces:
            raise InvalidInput("field 'records' is for requests with serde 'arrow', and without 'reply_with' 'pieces'")

    def _decode(self) -> tuple[Signature, dict[str, Input]]:
        if self.native:
            return tensors.decode(self.data)
        decode = DECODERS.get(self.serde)
        if decode is None:
            raise InvalidInput(f"field 'serde' is {self.serde!r}; expected 'arrow', 'stream', or no such field")
        inputs = decode(self.data)
        return signature(inputs), inputs


def _records_in(field: bytes) -> int:
    """Return the number in the field `records`; 0 if it is none, or too large."""
    number = int(field) if field.isdigit() else 0
    return number if number <= MOST_RECORDS else 0


def request_fields(
    uri: str,
    inputs: tensors.Inputs,
    reply_to: str = "",
    deadline_ms: int | None = None,
    reply_with: bytes = b"",
    store: Callable[[Sequence[bytes | memoryview]], str | None] | None = None,
    version: str = "",
    origin: str = "",
    records: int = 0,
    traceparent: str = "",
    counted: str = "",
) -> dict[str, str | bytes]:
    """Return the fields of the stream entry of a request in our own encoding; see `Entry` for their meaning.

    `store` writes the encoded inputs to a file and returns its name, or None to send the inputs through Redis; see
    `protocol.payloads.files.write`.

    Raises:
        InvalidInput: If the uri is no string of a valid length, or an input cannot be sent.
    """
    try:
        valid = isinstance(uri, str) and 0 < len(uri.encode()) <= MAX_URI_BYTES
    except UnicodeEncodeError:
        valid = False
    if not valid:
        raise InvalidInput(
            f"uri is {str(uri)[:64]!r} ({type(uri).__name__}); expected a string of 1 to {MAX_URI_BYTES} bytes of UTF-8"
        )
    fields: dict[str, str | bytes] = {"uri": uri, "serde": NATIVE}
    parts = tensors.encode_parts(inputs)
    name = store(parts) if store else None
    if name:
        fields["data_file"] = name
    else:
        fields["data"] = b"".join(parts)
    if reply_to:
        fields["reply_to"] = reply_to
    if reply_with:
        fields["reply_with"] = reply_with
    if deadline_ms is not None:
        fields["deadline"] = str(deadline_ms)
    if version:
        fields["version"] = version
    if origin:
        fields["origin"] = origin
    if records:
        fields["records"] = str(records)
    if traceparent:
        fields["traceparent"] = traceparent
    if counted:
        fields["counted"] = counted
    return fields


def parse_entry(entry_id: bytes, fields: Mapping[bytes, bytes], priority: str = NORMAL) -> Entry:
    """Read an entry of the stream of a priority.

    Raises:
        InvalidInput: If the entry has no `uri`, or a huge one, and so cannot be answered.
    """
    if b"uri" not in fields or len(fields[b"uri"]) > _MAX_ANSWERED_URI_BYTES:
        names = [name[:32].decode("utf8", "replace") for name in list(fields)[:8]]
        raise InvalidInput(
            f"stream entry {entry_id.decode()} has the fields {names}; expected data and a uri of 1 to {MAX_URI_BYTES} "
            "bytes"
        )
    return Entry(
        entry_id,
        to_text(fields[b"uri"]),
        fields.get(b"data", b""),
        fields.get(b"serde", b""),
        to_text(fields.get(b"reply_to", b"")),
        fields.get(b"deadline", b""),
        priority,
        fields.get(b"reply_with", b""),
        fields.get(b"data_file", b""),
        version=to_text(fields.get(b"version", b"")),
        origin=to_text(fields.get(b"origin", b"")[:_MAX_ORIGIN_BYTES]),
        records=fields.get(b"records", b"")[:_MAX_RECORDS_DIGITS],
        traceparent=fields.get(b"traceparent", b"")[:_MAX_TRACEPARENT_BYTES],
        counted=fields.get(b"counted", b"")[:_MAX_COUNTED_BYTES],
    )
