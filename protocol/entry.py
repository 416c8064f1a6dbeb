"""Stream entries: how a request travels through Redis.

Several encodings share one stream. The field `serde` of an entry names its encoding: `arrow` is ours (`tensors`),
`stream` the original's JSON (`original.json`); without the field it is the original's base64 Arrow
(`original.arrow`). A result is written in our encoding if the request was, else in the original's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cluster_serving.protocol import tensors
from cluster_serving.protocol.errors import InvalidInput, ServingError
from cluster_serving.protocol.inputs import Input
from cluster_serving.protocol.keys import NORMAL
from cluster_serving.protocol.original import arrow as original_arrow
from cluster_serving.protocol.original import json as original_json
from cluster_serving.protocol.payload_files import PayloadFolder
from cluster_serving.protocol.signature import Signature, signature

MAX_URI_BYTES = 4096
"""Longest uri, as UTF-8; it becomes part of a Redis key."""

NATIVE = b"arrow"
"""Value of the field `serde` in our own encoding."""

RESULT = b"result"
"""Value of the field `reply_with` of a client that wants to hear of a result by the result itself."""

JSON = b"stream"
"""Value of the field `serde` if `data` is the body of an HTTP request to the original's front end."""

IMAGE = b"image"
"""Stands for `serde` in entries of the 0.7 and 0.8 clients, which have no such field (`original.image_stream`)."""

_MAX_DEADLINE_DIGITS = 15


class Entry(NamedTuple):
    """One entry of the stream, as read.

    Attributes:
        id: Entry id that Redis gave it.
        uri: The client's name for the request.
        data: Encoded inputs.
        serde: Field `serde`; empty for the original's encoding.
        reply_to: Channel on which the client wants to hear of the result; empty for the result key's own.
        reply_with: What it wants to hear: `RESULT`, or only the uri.
        deadline: Milliseconds that the request may wait, in digits, "0" for no limit; empty for the job's default.
        priority: Which of the job's streams it is in (`protocol.keys`).
        file: Name of the file that the inputs are in (`protocol.payload_files`), as the client gave it; else empty.
        path: Where that file is, once it is known to be in the folder of the job.
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

    @property
    def size(self) -> int:
        """Bytes that it brings into the job."""
        return len(self.data) + len(self.uri) + len(self.serde) + len(self.reply_to)

    @property
    def native(self) -> bool:
        """Whether request and result use our own encoding."""
        return self.serde == NATIVE

    @property
    def queued_ms(self) -> int:
        """When Redis took the request, by its own clock: milliseconds since the epoch."""
        return int(self.id.partition(b"-")[0])

    def decode(self) -> tuple[Signature, dict[str, Input]]:
        """Decode the inputs.

        Raises:
            InvalidInput: They cannot be read; the message says where they break.
        """
        if self.deadline and not (self.deadline.isdigit() and len(self.deadline) <= _MAX_DEADLINE_DIGITS):
            raise InvalidInput(
                f"field 'deadline' is {self.deadline[:32]!r}; expected milliseconds, in at most 15 digits"
            )
        if not self.data:
            raise InvalidInput("field 'data' is missing or empty; expected an Arrow IPC stream")
        try:
            return self._decode()
        except ServingError:
            raise
        except Exception as error:
            # Whatever Arrow or numpy make of a hostile payload, it concerns its sender alone.
            raise InvalidInput(f"the payload cannot be read: {type(error).__name__}: {error}") from error

    def _decode(self) -> tuple[Signature, dict[str, Input]]:
        if self.native:
            return tensors.decode(self.data)
        if self.serde == JSON:
            inputs = original_json.decode_request(self.data)
        elif self.serde == IMAGE:
            inputs = {"image": original_arrow.decode_text("image", self.data.decode("latin1"))}
        elif self.serde:
            raise InvalidInput(f"field 'serde' is {self.serde!r}; expected 'arrow', 'stream', or no such field")
        else:
            inputs = original_arrow.decode_request(self.data)
        return signature(inputs), inputs


def request_fields(
    uri: str,
    inputs: Mapping[str, Input],
    reply_to: str = "",
    deadline_ms: int | None = None,
    reply_with: bytes = b"",
    folder: PayloadFolder | None = None,
) -> dict[str, str | bytes]:
    """Fields of the XADD that queues a request in our own encoding.

    Args:
        uri: The client's name for the request.
        inputs: The model's inputs by name.
        reply_to: Channel for the wake-up; empty for the result key's own.
        deadline_ms: Milliseconds that it may wait, 0 for no limit; None for the job's default.
        reply_with: What the wake-up holds: `RESULT`, or only the uri.
        folder: Where the encoded inputs are left, if there is room; None to send them along.

    Raises:
        InvalidInput: The uri is not a non-empty string, or an input cannot be sent.
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
    name = folder.write(parts) if folder else None
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
    return fields


def parse_entry(entry_id: bytes, fields: Mapping[bytes, bytes], priority: str = NORMAL) -> Entry:
    """Read an entry of the stream of a priority.

    Raises:
        InvalidInput: It has no `uri` that could be part of a key, so there is nobody to answer.
    """
    if not 0 < len(fields.get(b"uri", b"")) <= MAX_URI_BYTES:
        names = [name[:32].decode("utf8", "replace") for name in list(fields)[:8]]
        raise InvalidInput(
            f"stream entry {entry_id.decode()} has the fields {names}; expected data and a uri of 1 to {MAX_URI_BYTES} "
            "bytes"
        )
    return Entry(
        entry_id,
        fields[b"uri"].decode("utf8", "surrogateescape"),
        fields.get(b"data", b""),
        fields.get(b"serde", b""),
        fields.get(b"reply_to", b"").decode("utf8", "surrogateescape"),
        fields.get(b"deadline", b""),
        priority,
        fields.get(b"reply_with", b""),
        fields.get(b"data_file", b""),
    )
