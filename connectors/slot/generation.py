"""Part of a slot in the generations of its job (`protocol.generations`): whether it reads, and what it leaves."""

import time
from typing import Any

import redis

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.protocol.generations import CANARY, RETIRING, SERVING, SHADOW, Generation, Generations
from cluster_serving.protocol.keys import JobKeys

_LOOK_S = 0.1
_GRACE_S = 0.4
"""Seconds for which a generation that retires reads on: until then, all slots of the next one have seen their role."""


class GenerationView:
    """The generations of a job, as one slot has seen them last.

    Args:
        client: Connection to the job's Redis.
        options: Job, generation and version of the slot.

    Attributes:
        key: Key of the hash.
        now: The generations. A Redis that has lost them changes nothing (see `SlotReporter`).
        fields: Hash of these generations, as Redis gives it; empty before the first look.
    """

    def __init__(self, client: redis.Redis, options: RedisOptions) -> None:
        # redis-py types its commands as if they might be awaitable.
        self._client: Any = client
        self.key = JobKeys(options.job).generations
        self._number = options.generation
        self._as_started = Generation(options.generation, SERVING, version=options.version, numbered=options.numbered)
        self.now = Generations({self._number: self._as_started})
        self.fields: dict[bytes, bytes] = {}
        self._next_look = 0.0
        self._retires_at: float | None = None
        self._left_seen: str | None = None

    def look(self) -> None:
        """Read the generations, unless they were read a moment ago.

        Raises:
            redis.RedisError: If Redis does not answer.
        """
        now = time.monotonic()
        if now < self._next_look:
            return
        fields = self._client.hgetall(self.key)
        found = Generations.read(fields)
        if found.all or found.last:
            self.now, self.fields = found, fields
        own = self.own
        if own is None or own.role == RETIRING:
            # A slot that starts again, or whose generation has ended, has no successor to wait for.
            grace = _GRACE_S if own and self._next_look else 0.0
            self._retires_at = self._retires_at or now + grace
        else:
            self._retires_at = None
        self._next_look = now + _LOOK_S

    @property
    def own(self) -> Generation | None:
        """The generation of this slot; None if it has ended."""
        return self.now.all.get(self._number)

    @property
    def reading(self) -> list[Generation]:
        """The generations that read requests of clients.

        Where none does, the job was stopped while this slot read: it answers what it got as if it served.
        """
        return self.now.reading or [self._as_started]

    @property
    def reads(self) -> bool:
        """True if this slot reads requests, those of clients or copies of them."""
        if self._retires_at is not None:
            return time.monotonic() < self._retires_at
        return self.own is not None and (self.own.reads or self.own.role == SHADOW)

    @property
    def retires(self) -> bool:
        """True if this slot has read requests, and reads no more."""
        return self._retires_at is not None and not self.reads

    @property
    def is_alone(self) -> bool:
        """True if the generation of this slot serves, and there is no other one."""
        return len(self.now.all) == 1 and self.now.serving is not None and self.now.serving is self.own

    @property
    def canary(self) -> Generation | None:
        """The canary of the job, if it has one."""
        return self.now.of_role(CANARY)

    @property
    def shadow(self) -> Generation | None:
        """The shadow that gets copies of the requests of this slot, if the job has one."""
        found = self.now.of_role(SHADOW)
        return found if found and found.number != self._number else None

    def has_left(self) -> bool:
        """Return True if requests may have been handed over to other slots since the last call."""
        seen, self._left_seen = self._left_seen, self.now.left
        return seen != self.now.left
