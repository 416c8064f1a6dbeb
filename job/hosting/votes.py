"""What the slots of a job tell of an order: they make the change together, once each of them has loaded the model."""

from __future__ import annotations

import json
from typing import Any

from cluster_serving.connectors.slot.redis import write_hash
from cluster_serving.protocol.errors import ServingError, from_wire
from cluster_serving.protocol.hosting import orders
from cluster_serving.protocol.keys import JobKeys, as_text
from cluster_serving.protocol.slots import read_reports

BEGUN, LOADED, FAILED, DONE = "begun", "loaded", "failed", "done"
"""What a slot tells, in this order; one of the two in the middle."""

MAKE, KEEP = "make", "keep"
"""Decisions: the slots make the change, or go on as before."""

_DECISION = "decision"
_KEPT_S = 3600


class Votes:
    """The hash of one order; its fields are `<what>:<index of the slot>`, and the decision.

    Args:
        client: Connection to the job's Redis.
        job: `jobName`.
        order: Id of the order.
        index: Index of this slot.

    Attributes:
        decision: `MAKE` or `KEEP`; empty before the decision.
    """

    def __init__(self, client: Any, job: str, order: str, index: int) -> None:
        self._client = client
        self._key = orders.votes(job, order)
        self._index = index
        self._told: dict[str, dict[int, str]] = {}
        self.decision = ""

    def read(self) -> None:
        """Read what all slots have told.

        Raises:
            redis.RedisError: If Redis cannot be used.
        """
        found = {as_text(field): as_text(value) for field, value in self._client.hgetall(self._key).items()}
        self.decision = found.pop(_DECISION, "")
        self._told = {what: {} for what in (BEGUN, LOADED, FAILED, DONE)}
        for field, value in found.items():
            what, _, index = field.partition(":")
            self._told[what][int(index)] = value

    def tell(self, what: str, error: ServingError | None = None) -> None:
        """Tell how far this slot is; with the error, if it has failed."""
        told = json.dumps([error.code, error.message]) if error else "yes"
        if what == BEGUN:
            self._client.hdel(self._key, f"{LOADED}:{self._index}")
        write_hash(self._client, self._key, {f"{what}:{self._index}": told})
        self._client.expire(self._key, _KEPT_S)

    def decide(self, live: set[int]) -> None:
        """Decide for all slots, if this one is the first that lives and all of them have told enough."""
        if self.decision or self._index != min(live):
            return
        if self._told[FAILED]:
            self.decision = KEEP
        elif live <= self._told[LOADED].keys() | self._told[DONE].keys():
            self.decision = MAKE
        if self.decision:
            write_hash(self._client, self._key, {_DECISION: self.decision})

    def has(self, what: str) -> bool:
        """Return True if this slot has told something."""
        return self._index in self._told[what]

    def ends(self, live: set[int]) -> bool:
        """Return True if this slot has to end the order: all are done, and it is the first that lives."""
        return self._index == min(live) and live <= self._told[DONE].keys()

    @property
    def error(self) -> ServingError | None:
        """Why a slot could not load the model, which is named if another one could; None if none has failed."""
        if not self._told[FAILED]:
            return None
        index, text = min(self._told[FAILED].items())
        code, message = json.loads(text)
        return from_wire(code, f"slot {index} cannot load it: {message}" if self._told[LOADED] else message)

    def delete(self) -> None:
        """Forget the order."""
        self._client.delete(self._key)


def live_slots(client: Any, job: str, index: int) -> set[int]:
    """Return the indices of the slots of a job that serve; `index` is this one's, which counts in any case.

    Raises:
        redis.RedisError: If Redis cannot be used.
    """
    seconds, _ = client.time()
    reports = read_reports(client.hgetall(JobKeys(job).slots()), seconds)
    return {index, *(report.index for report in reports if report.state == "ready")}
