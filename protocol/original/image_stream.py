"""The protocol of the 0.7 and 0.8 clients, which a job named `image_stream` speaks.

Stream entries have the fields `uri` and `image` (base64 of a JPEG). The `value` of a hash `result:<uri>` is text: with
`topN` that of 0.8, `[[8,0.9][3,0.1]]`, with `top_n` that of 0.7, `{"8":"0.9","3":"0.1"}`, or else nested lists.
"""

from __future__ import annotations

from collections.abc import Mapping

from cluster_serving.protocol.entry import IMAGE, Entry
from cluster_serving.protocol.entry import parse_entry as parse_later_entry
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.keys import NORMAL
from cluster_serving.protocol.original import arrow as original_arrow
from cluster_serving.protocol.original.floats import java_float

STREAM = "image_stream"
"""Name of stream and job, fixed in those clients."""


def parse_entry(entry_id: bytes, fields: Mapping[bytes, bytes], priority: str = NORMAL) -> Entry:
    """Read an entry of these clients, or of later clients, which may use this job too.

    Raises:
        InvalidInput: If the entry has no `uri`, so that no result key is known.
    """
    if b"image" in fields and b"data" not in fields:
        fields = {**fields, b"data": fields[b"image"], b"serde": IMAGE}
    return parse_later_entry(entry_id, fields, priority)


def sent(job: str, entry: Entry) -> bool:
    """Return True if a client of 0.7 or 0.8 sent the entry."""
    return job == STREAM and entry.serde == IMAGE


def result_fields(fields: Mapping[str, str | bytes]) -> Mapping[str, str | bytes]:
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
