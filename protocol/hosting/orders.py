"""Orders to the slots of a job that serves several models: load, unload or remove one of them.

The hash `<jobName>:control:models` has one order for each model: its name → `Order` as JSON.
`<jobName>:control:<id>:slots` has how far each slot is with it, and whether they make the change (`job.hosting.votes`).
The last slot that has carried out an order removes it; `<jobName>:control:<id>` has the outcome
(`protocol.model_control`). What a slot that starts again needs is in the record of each model, `JobKeys(name).record`.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field

from cluster_serving.protocol.json_record import JsonRecord
from cluster_serving.protocol.keys import JobKeys

REMOVE = "remove"
"""Action of an order beside `LOAD` and `UNLOAD`: the model has gone, and nothing answers for it any more."""

OPTIONS = "options"
"""Field of a model's record: options that it was loaded with while the job ran, as in `Order.options`."""

KEPT_OUT = "kept_out"
"""Field of a model's record: `UNLOADED`, or the reason for which a slot does not load it; empty if it does."""

CHANGED = "changed"
"""Field of a model's record: time of its last change, in seconds since the epoch; the latest one is in the job's."""

HANGS = "hangs"
"""Field of a model's record: number of records on which it has not returned within `inferenceTimeout`."""

DEATHS = "deaths"
"""Field of a model's record: the requests on which processes have died, separated by commas."""

VERSION, CONTENT = "version", "content"
"""Fields of a model's record: its version, and the fingerprint of its files, by which their changes are counted."""

REFUSED, REFUSED_CONTENT = "refused", "refused_content"
"""Fields of a model's record: why its new files are not served while earlier ones are, and their fingerprint."""


@dataclass(frozen=True)
class Order(JsonRecord):
    """An order to the slots.

    Attributes:
        action: `LOAD`, `UNLOAD` or `REMOVE`.
        options: Options of a job with this model alone, as JSON, for `LOAD`; else empty.
        id: Identifier, of which the key of the outcome is made.
        time: Time of the order, in seconds since the epoch.
    """

    action: str
    options: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    time: float = field(default_factory=time.time)


def key(job: str) -> str:
    """Return the key of the orders to a job."""
    return JobKeys(job).control_outcome("models")


def votes(job: str, order: str) -> str:
    """Return the key of what the slots of a job tell of an order, by its id."""
    return f"{JobKeys(job).control_outcome(order)}:slots"
