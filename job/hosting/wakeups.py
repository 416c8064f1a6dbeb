"""The wait for orders: a read in Redis that the next order ends, so that a slot without one costs next to nothing."""

from __future__ import annotations

import select
import socket
from contextlib import suppress

import redis
from redis.exceptions import ResponseError

from cluster_serving.connectors.slot import permissions
from cluster_serving.protocol.hosting import orders
from cluster_serving.protocol.redis.dedicated import DedicatedConnection

_BLOCK_S = 3.0
"""Seconds of a read that finds nothing. What Redis has lost is found as late as that."""

_LATE_S = 1.0
_REFUSED_S = 0.25
"""Seconds between two looks for orders where a user of Redis may not use XREAD."""


class Wakeups:
    """The wait of one thread until it is woken: by an entry of the stream of wake-ups, or by another thread.

    Args:
        client: Client whose settings the connection has.
        job: `jobName`.
    """

    def __init__(self, client: redis.Redis, job: str) -> None:
        self._client = client
        self._connection = DedicatedConnection(client)
        self._key = orders.wakeups(job)
        # An entry that comes between two reads is found by the second one.
        self._last = b"0-0"
        self._is_refused = False
        self._woken, self._waker = socket.socketpair()
        for each in (self._woken, self._waker):
            each.setblocking(False)

    def wake(self) -> None:
        """Wake the thread; any other one may call this."""
        with suppress(OSError):
            self._waker.send(b"1")

    def wait(self, seconds: float | None = None) -> None:
        """Wait to be woken; at most these seconds if they are given, or until a read ends that has found nothing.

        Raises:
            redis.RedisError: If Redis cannot be used.
        """
        seconds = _BLOCK_S + _LATE_S if seconds is None else seconds
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if self._is_refused:
            seconds = min(seconds, _REFUSED_S)
        else:
            if not self._connection.waits:
                command = ("XREAD", "BLOCK", int(1000 * _BLOCK_S), "STREAMS", self._key, self._last)
                self._connection.begin(*command, limit=_BLOCK_S)
            poll.register(self._connection.socket, select.POLLIN)
        poll.poll(1000 * seconds)
        with suppress(BlockingIOError):
            self._woken.recv(1024)
        if self._connection.waits:
            self._end()

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()
        self._woken.close()
        self._waker.close()

    def _end(self) -> None:
        try:
            for _, entries in self._connection.end(0) or ():
                self._last = entries[-1][0]
        except ResponseError as error:
            if permissions.refusal(self._client, error) is None:
                raise
            self._is_refused = True
