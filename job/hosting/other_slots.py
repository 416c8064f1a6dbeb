"""Other slots of a job of several models: requests of one that has died are taken over by the others."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from cluster_serving.connectors.slot.peers import Peers
from cluster_serving.job.hosting.queue import Host
from cluster_serving.job.options import JobOptions
from cluster_serving.protocol.keys import GROUP, JobKeys
from cluster_serving.protocol.scripts import HAND_OVER_ALL, Call, call

_IDLE_S = 1.0


class _Peers(Peers):
    """Watch over slots that read the streams of several models, which change."""

    def __init__(self, host: Host, keys: JobKeys) -> None:
        self._own = keys.streams
        super().__init__(host.client, self._own, host.consumer, keys.consumers(0))

    def look_at(self, streams: Iterable[str]) -> None:
        """Take over the requests of these streams, and of those of the job."""
        self._streams = [*dict.fromkeys((*self._own, *streams))]

    @property
    def is_due(self) -> bool:
        """True if it is time for a look."""
        return self._due is None or self._clock() >= self._due

    @property
    def suspects(self) -> bool:
        """True if the last look has found slots that may have died."""
        return bool(self._silent)


class OtherSlots:
    """Watch of one slot over the others, for all models.

    Args:
        host: What the queues of the slot share.
        options: Options of the job.
    """

    def __init__(self, host: Host, options: JobOptions) -> None:
        self._peers = _Peers(host, JobKeys(options.redis.job))
        self._next = 0.0

    def take_over(self, models: Collection[str], is_idle: bool) -> set[str]:
        """Take over some requests of slots that have died, if it is time; return the names of their models.

        Raises:
            redis.RedisError: If Redis cannot be used.
        """
        now = time.monotonic()
        if not self._peers.is_due or (is_idle and now < self._next):
            return set()
        # The last look, when this slot was idle, has found no slot that may have died.
        self._next = now + _IDLE_S
        names = {stream: name for name in models for stream in JobKeys(name).streams}
        self._peers.look_at(names)
        found = self._peers.take_over()
        if self._peers.suspects:
            self._next = now
        return {names[stream] for stream in found if stream in names}


def forget_left(host: Host, job: str) -> None:
    """Forget slots that the job has no more, which would count as dead for ever.

    Raises:
        redis.RedisError: If Redis cannot be used.
    """
    for stream in JobKeys(job).streams:
        names = [each["name"] for each in host.client.xinfo_consumers(stream, GROUP)]
        claim_all(host, job, stream, [name for name in names if host.is_left(name)])


def claim_all(host: Host, job: str, stream: str, consumers: Collection[bytes]) -> None:
    """Claim the requests of slots that the job has no more.

    Raises:
        redis.RedisError: If Redis cannot be used.
    """
    if consumers:
        call(host.client, Call(HAND_OVER_ALL, [JobKeys(job).generations, stream], [GROUP, host.consumer, *consumers]))
