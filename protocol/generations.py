"""Generations of a job: the Redis hash `<jobName>:generations`.

Each change of a job (model, configuration, number of slots) starts a further generation of it beside the one that
serves. Both read the same streams, as consumers of one group with names of their own. The commands write the roles; the
slots follow them within a fraction of a second, once they have seen that there are two (`IDLE_LOOK_S`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from cluster_serving.protocol.json_record import JsonRecord
from cluster_serving.protocol.keys import as_text

CANDIDATE = "candidate"
"""Role of a generation that loads its model; it reads no requests."""

SERVING = "serving"
"""Role of the generation that answers requests."""

CANARY = "canary"
"""Role of a generation that gets a share of the requests."""

SHADOW = "shadow"
"""Role of a generation that computes copies of a share of the requests, and answers none."""

RETIRING = "retiring"
"""Role of a generation that reads no more requests, and answers those that it has read."""

LAST = "last"
"""Field with the highest number that a generation of the job has ever had."""

VERSION = "version"
"""Field with the version of the last start that succeeded, of a model without numbered folders."""

LEFT = "left"
"""Field with a counter: it changes when requests were handed over to other slots (`protocol.scripts.HAND_OVER`)."""

DIVIDED = "divided"
"""Field with the number of requests that were divided between two generations (`is_in_trial`)."""

IDLE_LOOK_S = 2.0
"""Seconds after which an idle slot reads the generations again; beside another generation it does so all the time."""


@dataclass(frozen=True)
class Generation(JsonRecord):
    """One generation of a job.

    Attributes:
        number: Its number, from 1; part of the names of its consumers.
        role: `CANDIDATE`, `SERVING`, `CANARY`, `SHADOW` or `RETIRING`.
        submission: Identifier of the start that made it, as in `SlotReport`.
        version: Version of its model, which results name.
        numbered: The version is that of the model's folder; otherwise it counts the starts and updates that succeeded.
        share: Percentage of the requests of a canary or shadow, above 0 and up to 100.
        since: Time of its start in seconds since the epoch.
        flink: The Flink that runs it, as `launcher.services.flink_rest.Flink.place`; empty if its start did not tell.
    """

    number: int
    role: str
    submission: str = ""
    version: str = ""
    numbered: bool = False
    share: float = 0.0
    since: float = 0.0
    flink: str = ""

    @property
    def reads(self) -> bool:
        """True if the generation reads requests of clients."""
        return self.role in (SERVING, CANARY)


@dataclass(frozen=True)
class Generations:
    """The generations that a job has now.

    Attributes:
        all: Generations by number, in the order of their numbers.
        last: See `LAST`.
        version: See `VERSION`; None if it is not known, as for a job that an older version of these commands started.
        left: See `LEFT`.
    """

    all: Mapping[int, Generation] = field(default_factory=dict)
    last: int = 0
    version: int | None = None
    left: str = "0"

    @classmethod
    def read(cls, hash: Mapping[bytes, bytes] | Mapping[str, str]) -> Generations:
        """Read the hash, as Redis gives it; a missing hash has no generations."""
        texts = {as_text(key): value for key, value in hash.items()}
        found = [Generation.from_json(value) for key, value in texts.items() if key.isdigit()]
        found.sort(key=lambda generation: generation.number)
        version = int(texts[VERSION]) if VERSION in texts else None
        left = as_text(texts.get(LEFT, "0"))
        return cls({each.number: each for each in found}, int(texts.get(LAST, 0)), version, left)

    def of_role(self, role: str) -> Generation | None:
        """Return the latest generation of a role; None if there is none."""
        return self._by_role.get(role)

    @cached_property
    def _by_role(self) -> Mapping[str, Generation]:
        # The source looks for roles several times in each read.
        return {found.role: found for found in self.all.values()}

    @property
    def serving(self) -> Generation | None:
        """The generation that serves."""
        return self.of_role(SERVING)

    @property
    def trial(self) -> Generation | None:
        """The canary or the shadow: a job has at most one of them."""
        return self.of_role(CANARY) or self.of_role(SHADOW)

    @property
    def reading(self) -> list[Generation]:
        """The generations that read requests of clients."""
        return [found for found in self.all.values() if found.reads]


def is_in_trial(number: int, share: float) -> bool:
    """Return True if the request of a running number goes to a canary or shadow with that percentage.

    Multiples of the golden ratio fill the unit interval evenly. So of any run of requests the right share is chosen, to
    within a few requests, and never in a rhythm that clients could have, too.
    """
    return number * 0.6180339887498949 % 1 < share / 100
