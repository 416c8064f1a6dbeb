"""Orders to the slots of a job that serves several models: load, unload or remove one of them.

The hash `<jobName>:control:models` has one order for each model: its name → `Order` as JSON.
`<jobName>:control:<id>:slots` has how far each slot is with it, and whether they make the change (`job.hosting.votes`).
An entry in the stream `<jobName>:control:models:wakeups` wakes the slots, which look now and then without it.
The last slot that has carried out an order removes it; `<jobName>:control:<id>` has the outcome (`hosting.control`).
What a slot that starts again needs is in the record of each model, `JobKeys(name).record`.
"""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import ResponseError

from cluster_serving.protocol.errors import ModelError
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

_WAKEUP_TTL_S = 3600


def removed(model: str, job: str) -> ModelError:
    """Return the error for requests to a model whose subfolder has gone."""
    return ModelError(f"model {model!r} was removed from the job {job}")


@dataclass(frozen=True)
class Order(JsonRecord):
    """An order to the slots.

    Attributes:
        action: `LOAD`, `UNLOAD` or `REMOVE`.
        options: Options of a job with this model alone, as JSON, for `LOAD`; else empty.
        id: Identifier, which is part of the key of the outcome.
        time: Time of the order, in seconds since the epoch.
    """

    action: str
    options: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    time: float = field(default_factory=time.time)


def key(job: str) -> str:
    """Return the key of the orders to a job."""
    return JobKeys(job).control_outcome("models")


def wakeups(job: str) -> str:
    """Return the key of the stream whose entries wake the slots of a job; it has the last one, for an hour."""
    return f"{key(job)}:wakeups"


def wake(client: Any, job: str) -> None:
    """Let the slots of a job look for orders at once.

    Raises:
        redis.RedisError: If Redis cannot be used.
    """
    # Redis may be full: the slots look without an entry, later.
    with suppress(ResponseError):
        client.xadd(wakeups(job), {"for": "orders"}, maxlen=1, approximate=False)
        client.expire(wakeups(job), _WAKEUP_TTL_S)


def votes(job: str, order: str) -> str:
    """Return the key of what the slots of a job tell of an order, by its id."""
    return f"{JobKeys(job).control_outcome(order)}:slots"
