"""Requests that a slot has read, and leaves to slots in other processes while it computes a long batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.job.hosting.queue import Host
from cluster_serving.job.options import JobOptions
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.keys import GROUP, JobKeys
from cluster_serving.protocol.scripts import HAND_OVER, Argument, Call, call


class LeftInRedis:
    """Requests of one job that a consumer has which reads nothing; the first slot that is free claims them.

    A slot looks for them when the generations of the job say that some were left, which it reads all the time. Requests
    that no slot claims are found as the requests of a silent slot are.

    Args:
        host: What the queues of the slot share.
        options: Options of the job.

    Attributes:
        socket: None: nothing wakes a slot.
    """

    socket = None

    def __init__(self, host: Host, options: JobOptions) -> None:
        self._host = host
        self._keys = JobKeys(options.redis.job)
        self._consumer = f"{options.redis.job}-unbegun"
        self._size = options.batch.max_batch_size
        self._names: deque[str] = deque()

    def put(self, name: str, entries: Sequence[Entry]) -> None:
        """Leave requests for a model.

        Raises:
            redis.RedisError: If Redis cannot be used.
        """
        keys = JobKeys(name)
        arguments: list[Argument] = [GROUP, self._consumer]
        for entry in entries:
            arguments += [keys.streams.index(keys.stream(entry.priority)) + 2, entry.id]
        call(self._host.client, Call(HAND_OVER, [self._keys.generations, *keys.streams], arguments))

    def take(self, names: Collection[str]) -> tuple[str, Sequence[Entry]] | None:
        """Take some requests for one of these models, and its name; None for none.

        Raises:
            redis.RedisError: If Redis cannot be used.
        """
        if self._host.view.has_left():
            self._names = deque(self._find(names))
        while self._names:
            name, host = self._names[0], self._host
            entries = StreamReader(host.client, name, host.consumer, 0, connection=host.connection).claim(
                self._consumer, self._size
            )
            if entries:
                return name, entries
            self._names.popleft()
        return None

    def _find(self, names: Collection[str]) -> list[str]:
        """Return the names of the models for which requests were left."""
        streams = [(name, stream) for name in names for stream in JobKeys(name).streams]
        with self._host.client.pipeline(transaction=False) as pipeline:
            for _, stream in streams:
                pipeline.xpending_range(stream, GROUP, "-", "+", 1, self._consumer)
            replies = pipeline.execute(raise_on_error=False)
        # One that is missing is created by the next look for what is pending.
        found = (name for (name, _), reply in zip(streams, replies, strict=True) if isinstance(reply, list) and reply)
        return [*dict.fromkeys(found)]
