"""The protocol of the 0.7 and 0.8 clients, which a job named `image_stream` speaks.

Stream entries have the fields `uri` and `image` (base64 of a JPEG). The `value` of a hash `result:<uri>` is text: with
`topN` that of 0.8, `[[8,0.9][3,0.1]]`, with `top_n` that of 0.7, `{"8":"0.9","3":"0.1"}`, or else nested lists.
"""

from __future__ import annotations

from collections.abc import Mapping

from cluster_serving.protocol.inputs import Array, Input
from cluster_serving.protocol.original import arrow as original_arrow
from cluster_serving.protocol.original.floats import java_float

STREAM = "image_stream"
"""Name of stream and job, fixed in those clients."""

IMAGE = b"image"
"""Value of `Entry.serde` for entries of these clients, which lack the field."""

Fields = Mapping[bytes, bytes]


def is_early_job(job: str) -> bool:
    """Return True for the job of clients of 0.7 and 0.8, which later clients may use, too."""
    return job == STREAM


def with_serde(job: str, fields: Fields) -> Fields:
    """Return the fields of an entry of a job; those of an entry of 0.7 or 0.8 as later clients write them."""
    if job == STREAM and b"image" in fields and b"data" not in fields:
        return {**fields, b"data": fields[b"image"], b"serde": IMAGE}
    return fields


def is_early(job: str, serde: bytes) -> bool:
    """Return True if a client of 0.7 or 0.8 sent the request, whose `serde` is given."""
    return job == STREAM and serde == IMAGE


def decode_request(data: bytes) -> dict[str, Input]:
    """Decode the field `image`: base64 of an image."""
    return {"image": original_arrow.decode_text("image", data.decode("latin1"))}


def early_result(fields: Mapping[str, str | bytes]) -> Mapping[str, str | bytes]:
    """Convert the fields of a result hash from the original's later encoding to the one that these clients read."""
    if "code" in fields:
        return fields
    if "topN" in fields:
        return {"value": fields["topN"]}
    texts = [nested_text(output) for output in original_arrow.decode_result(fields["value"])]
    return {"value": texts[0] if len(texts) == 1 else f"[{','.join(texts)}]"}


def nested_text(output: Array) -> str:
    """Write an output of numbers as nested lists."""
    return f"[{','.join(map(nested_text, output))}]" if output.ndim else java_float(float(output))
