"""What client and job say to each other through Redis: keys, stream entries and result hashes.

Several encodings share one stream and are told apart per entry by the field `serde`: absent means the original's
base64 Arrow (`client.legacy`), `stream` its JSON (`client.legacy_json`), `arrow` ours (`client.tensors`). A result is
written in our encoding if the request was, else in the original's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from cluster_serving.client import legacy, legacy_json, tensors
from cluster_serving.client.errors import InvalidInput, ServingError, from_wire
from cluster_serving.client.inputs import Array, Input
from cluster_serving.client.java_float import java_float
from cluster_serving.client.priority import NORMAL

GROUP = "serving"
"""Consumer group of every job, as the original names it."""

DEFAULT_JOB = "serving_stream"

MAX_URI_BYTES = 4096
"""Longest uri, as UTF-8; it becomes part of a Redis key."""

NATIVE = b"arrow"
"""Value of the field `serde` in our own encoding."""

RESULT = b"result"
"""Value of the field `reply_with` of a client that wants to hear of a result by the result itself."""

JSON = b"stream"
"""Value of the field `serde` if `data` is the body of an HTTP request to the original's front end."""

IMAGE = b"image"
"""Stands for `serde` in entries of the 0.7 and 0.8 clients, which have no such field (`client.image_stream`)."""

RankedClasses = list[tuple[int, float]]
"""What `topN` leaves of an output: (class index, value), best first."""

Result = Array | list[Array] | RankedClasses | list[RankedClasses] | str
"""One output, several outputs in the model's order, their `topN` rankings, or a filter's text from the original."""

Outputs = dict[str, Array] | list[RankedClasses]
"""All outputs by name in the model's order, or their `topN` rankings."""

_MAX_DEADLINE_DIGITS = 15

_RANKING = ("topN.classes", "topN.values", "topN.counts")


def result_key(job: str, uri: str) -> str:
    """Redis hash that holds the result of a request; also the channel on which its completion is published."""
    return f"cluster-serving_{job}:{uri}"


def result_pattern(job: str) -> str:
    """SCAN pattern of all result keys of a job."""
    escaped = "".join(f"\\{c}" if c in "*?[]\\" else c for c in job)
    return f"cluster-serving_{escaped}:*"


def uri_of(job: str, key: str) -> str:
    """Request identifier in a result key; unlike in the original it may hold colons."""
    return key[len(result_key(job, "")) :]


def slots_key(job: str) -> str:
    """Redis hash in which the task slots of a job report their state."""
    return f"{job}:slots"


def stats_key(job: str) -> str:
    """Redis hash in which a job keeps the totals of its work."""
    return f"{job}:stats"


def dead_letters_key(job: str) -> str:
    """Redis stream of requests that were given up."""
    return f"{job}:dead"


def answered_key(job: str) -> str:
    """Redis counter of the requests that a job has answered since it was started."""
    return f"{job}:answered"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the stream, as read.

    Attributes:
        id: Entry id that Redis gave it.
        uri: The client's name for the request.
        data: Encoded inputs.
        serde: Field `serde`; empty for the original's encoding.
        reply_to: Channel on which the client wants to hear of the result; empty for the result key's own.
        reply_with: What it wants to hear: `RESULT`, or only the uri.
        deadline: Milliseconds that the request may wait, in digits, "0" for no limit; empty for the job's default.
        priority: Which of the job's streams it is in (`client.priority`).
    """

    id: bytes
    uri: str
    data: bytes
    serde: bytes = b""
    reply_to: str = ""
    deadline: bytes = b""
    priority: str = NORMAL
    reply_with: bytes = b""

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

    def decode(self) -> tuple[tensors.Signature, dict[str, Input]]:
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

    def _decode(self) -> tuple[tensors.Signature, dict[str, Input]]:
        if self.native:
            return tensors.decode(self.data)
        if self.serde == JSON:
            inputs = legacy_json.decode_request(self.data)
        elif self.serde == IMAGE:
            inputs = {"image": legacy.decode_text("image", self.data.decode("latin1"))}
        elif self.serde:
            raise InvalidInput(f"field 'serde' is {self.serde!r}; expected 'arrow', 'stream', or no such field")
        else:
            inputs = legacy.decode_request(self.data)
        return tensors.signature(inputs), inputs


def request_fields(
    uri: str, inputs: Mapping[str, Input], reply_to: str = "", deadline_ms: int | None = None, reply_with: bytes = b""
) -> dict[str, str | bytes]:
    """Fields of the XADD that queues a request in our own encoding.

    Args:
        uri: The client's name for the request.
        inputs: The model's inputs by name.
        reply_to: Channel for the wake-up; empty for the result key's own.
        deadline_ms: Milliseconds that it may wait, 0 for no limit; None for the job's default.
        reply_with: What the wake-up holds: `RESULT`, or only the uri.

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
    fields: dict[str, str | bytes] = {"uri": uri, "data": tensors.encode(inputs), "serde": NATIVE}
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
    )


def encode_result(native: bool, names: Sequence[str], outputs: Sequence[Array]) -> dict[str, str | bytes]:
    """Fields of the result hash for a model's outputs, without a batch dimension.

    Args:
        native: Which encoding the request came in.
        names: Output names of the model.
        outputs: One array per name.
    """
    if native:
        return {"value": tensors.encode(dict(zip(names, outputs, strict=True))), "serde": NATIVE}
    return {"value": legacy.encode_result(outputs)}


def encode_ranked(native: bool, ranked: Sequence[RankedClasses]) -> dict[str, str | bytes]:
    """Fields of the result hash for outputs filtered by `topN`, one ranking per output.

    The original wrote a text as `value`, on which its Python client fails. That client gets an array (n, 2) of class
    and value instead, and the text is in the field `topN`.
    """
    if native:
        pairs = [pair for ranking in ranked for pair in ranking]
        classes = np.array([index for index, _ in pairs], "i8")
        values = np.array([value for _, value in pairs], "f4")
        counts = np.array([len(ranking) for ranking in ranked], "i8")
        return {"value": tensors.encode(dict(zip(_RANKING, (classes, values, counts), strict=True))), "serde": NATIVE}
    texts = ("".join(f"[{index},{java_float(value)}]" for index, value in ranking) for ranking in ranked)
    arrays = [np.array(ranking, "f4") for ranking in ranked]
    return {"value": legacy.encode_result(arrays), "topN": "".join(f"[{text}]" for text in texts)}


def encode_rows(native: bool, names: Sequence[str], outputs: Sequence[Array]) -> dict[str, str | bytes]:
    """Fields of the result hash for 2-D outputs filtered by `pickTopN`; the field of that name holds the text."""
    fields = encode_result(native, names, outputs)
    if native:
        return fields
    texts = ("".join(f"[{','.join(map(java_float, row))}]" for row in output.tolist()) for output in outputs)
    return fields | {"pickTopN": "".join(f"[{text}]" for text in texts)}


def encode_error(error: ServingError) -> dict[str, str | bytes]:
    """Fields of the result hash for a request that failed, readable by original clients (`NaN`) and ours."""
    return {"value": legacy.ERROR_VALUE, "error": error.message, "code": error.code}


def decode_result(fields: Mapping[bytes, bytes]) -> Result:
    """Read a result hash.

    Raises:
        ServingError: The error that the job answered with, as its own class.
    """
    value = fields.get(b"value", b"")
    if b"code" not in fields and fields.get(b"serde") != NATIVE and value.startswith(b"["):
        return value.decode()
    outputs = decode_outputs(fields)
    values = outputs if isinstance(outputs, list) else list(outputs.values())
    return values[0] if len(values) == 1 else values


def decode_outputs(fields: Mapping[bytes, bytes]) -> Outputs:
    """Read a result hash, with the names of the outputs.

    Raises:
        ServingError: The error that the job answered with, as its own class.
    """
    if b"code" in fields:
        raise from_wire(fields[b"code"].decode(), fields.get(b"error", b"").decode("utf8", "replace"))
    value = fields.get(b"value", b"")
    if fields.get(b"serde") != NATIVE:
        arrays = legacy.decode_result(value)
        if b"topN" in fields:
            return [[(int(index), float(number)) for index, number in array] for array in arrays]
        return {str(index): array for index, array in enumerate(arrays)}
    _, outputs = tensors.decode(value)
    if tuple(outputs) == _RANKING:
        classes, values, counts = (np.asarray(array).tolist() for array in outputs.values())
        pairs = iter(zip(classes, values, strict=True))
        return [list(islice(pairs, count)) for count in counts]
    return {name: np.asarray(output) for name, output in outputs.items()}
