"""Requests to load or unload the model of a job, as a front end gives them to the controller of the job.

The list `<jobName>:control` has the requests, which are dropped if they are not begun in time, and the hash
`<jobName>:control:<id>` the outcome of each. The hash `<jobName>:controller` ends soon after its controller.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster_serving.protocol.errors import ServingError, from_wire
from cluster_serving.protocol.json_record import JsonRecord

LOAD, UNLOAD = "load", "unload"

MODEL_CONTROL = "modelControl"
"""Field of the hash of a controller that loads and unloads the model when it is asked to."""

UNLOADED = "unloaded"
"""State in the reports of the slots of a job that was stopped by such a request (`protocol.slots`)."""

OUTCOME_TTL_S = 60
"""Seconds for which an outcome is kept."""


@dataclass(frozen=True)
class ControlRequest(JsonRecord):
    """A request to the controller of a job.

    Attributes:
        action, model: `LOAD` or `UNLOAD`, and the name of a model of a job that serves several; else empty.
        expires: Time, by the clock of Redis in seconds since the epoch, after which the request is dropped.
        id: Identifier, which is part of the key of the outcome.
    """

    action: str
    expires: float
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    model: str = ""


def encode_outcome(error: ServingError | None) -> dict[str, str]:
    """Return the fields of an outcome."""
    return {"code": error.code if error else "", "error": error.message if error else ""}


def decode_outcome(fields: Mapping[bytes, bytes]) -> ServingError | None:
    """Return the error of an outcome; None if the request was carried out."""
    code, error = (fields.get(name, b"").decode("utf8", "replace") for name in (b"code", b"error"))
    return from_wire(code, error) if code else None
