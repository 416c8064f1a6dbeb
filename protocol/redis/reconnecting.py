"""Connections to Redis that find out when they have died silently, and connect again."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import EqualJitterBackoff
from redis.connection import HiredisRespSerializer
from redis.exceptions import AuthenticationError, ConnectionError, RedisError, ResponseError, TimeoutError
from redis.retry import Retry

from cluster_serving.protocol.compat import timeout as time_limit
from cluster_serving.protocol.redis import addresses
from cluster_serving.protocol.redis.dedicated import CHECK_TIMEOUT

# Seconds of silence after which a connection is checked before its next use.
CHECK_AFTER = 5.0
# A load balancer that forgets a connection tells neither end. The kernel notices it by itself: seconds of silence
# before it asks, seconds between its questions, their number, and milliseconds without an acknowledgement.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPALIVE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 2000}
_give_up: ContextVar[float] = ContextVar("give_up", default=0.0)


def watch_over(pool: Any, asynchronous: bool = False) -> None:
    """Let the connections of a pool find out that they have died, and connect again."""
    base = _AsyncPersistent if asynchronous else _Persistent
    kind = addresses.told(pool.connection_class, asynchronous)
    pool.connection_class = type(kind.__name__, (base, kind), {})


def _keep_alive(connected: Any) -> None:
    if connected.family in (socket.AF_INET, socket.AF_INET6):
        # Platforms have some of these options, containers may refuse them, and the connection may be lost already.
        with suppress(OSError):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE.items():
            with suppress(AttributeError, OSError):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _may_repeat() -> bool:
    return _give_up.get() > time.monotonic()


class _Heard:
    """Knows how long a connection has been silent; redis-py measures that by one clock or another."""

    health_check_interval: float
    _heard_at = 0.0

    @property
    def is_silent(self) -> bool:
        """True if Redis has sent nothing for so long that the connection is to be checked before it is used."""
        return bool(self.health_check_interval) and time.monotonic() - self._heard_at > self.health_check_interval

    def _heard(self, reply: Any, options: Mapping[str, Any]) -> None:
        # Without a reply within a timeout of its own, a read returns None.
        if reply is not None or options.get("timeout") is None:
            self._heard_at = time.monotonic()


class _Persistent(_Heard):
    """Finds out that a connection has died silently, and connects again.

    Within `persistent` it also connects again if the handshake fails, and makes a lost connection of a reply that does
    not come in time; redis-py repeats neither.
    """

    _sock: Any
    socket_timeout: float | None

    def connect(self) -> None:
        # Called before every command.
        if getattr(self, "_sock", None) is None:
            connect = super().connect  # type: ignore[misc]
            _HANDSHAKE.call_with_retry(connect, lambda _: self.disconnect())  # type: ignore[attr-defined]

    def _connect(self) -> Any:
        connected = super()._connect()  # type: ignore[misc]
        # The handshake of a new connection needs no check, which would begin with a handshake.
        self._heard_at = time.monotonic()
        _keep_alive(connected)
        return connected

    def check_health(self) -> None:
        if self.is_silent:
            self.verify()

    def verify(self) -> None:
        """Connect again unless Redis answers soon; redis-py waits as long as for the reply to any command."""
        try:
            self._sock.settimeout(CHECK_TIMEOUT)
            with suppress(ResponseError):
                super()._send_ping()  # type: ignore[misc]
            self._sock.settimeout(self.socket_timeout)
        except RedisError:
            self.disconnect()  # type: ignore[attr-defined]
            self.connect()

    def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            reply = super().read_response(*args, **options)  # type: ignore[misc]
        except TimeoutError as error:
            if _may_repeat():
                raise ConnectionError(str(error)) from error
            raise
        self._heard(reply, options)
        return reply


class _AsyncPersistent(_Heard):
    """The asyncio variant of `_Persistent`.

    It packs commands in C. Asyncio connections of redis-py pack them in Python, which takes ten times as long.

    It sends them without `asyncio.wait_for`, by which redis-py makes a task of each, and which before Python 3.12 loses
    a cancellation that comes when the command is sent.
    """

    _writer: asyncio.StreamWriter
    socket_timeout: float | None

    async def connect(self) -> None:
        if not self.is_connected:  # type: ignore[attr-defined]
            await _ASYNC_HANDSHAKE.call_with_retry(super().connect, self._failed)  # type: ignore[misc]

    async def _connect(self) -> None:
        await super()._connect()  # type: ignore[misc]
        # As in `_Persistent`.
        self._heard_at = time.monotonic()
        _keep_alive(self._writer.get_extra_info("socket"))

    async def _failed(self, error: Exception) -> None:
        await self.disconnect(nowait=True)  # type: ignore[attr-defined]

    async def check_health(self) -> None:
        if not self.is_silent:
            return
        try:
            async with time_limit(CHECK_TIMEOUT):
                with suppress(ResponseError):
                    await super()._send_ping()  # type: ignore[misc]
        except (RedisError, asyncio.TimeoutError) as error:
            await self._failed(error)
            await self.connect()

    async def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            reply = await super().read_response(*args, **options)  # type: ignore[misc]
        except TimeoutError as error:
            if _may_repeat():
                raise ConnectionError(str(error)) from error
            raise
        self._heard(reply, options)
        return reply

    _pack = HiredisRespSerializer().pack

    def pack_command(self, *args: Any) -> list[bytes]:
        packed: list[bytes] = self._pack(*args)
        return packed

    async def send_packed_command(self, command: bytes | Iterable[bytes], check_health: bool = True) -> None:
        if not self.is_connected:  # type: ignore[attr-defined]
            await self.connect()
        elif check_health:
            await self.check_health()
        writer = self._writer
        try:
            writer.writelines([command] if isinstance(command, bytes) else command)
            async with time_limit(self.socket_timeout or None):
                await writer.drain()
        except BaseException as error:
            # Part of the command may be sent; the rest must not follow.
            writer.transport.abort()
            await self.disconnect(nowait=True)  # type: ignore[attr-defined]
            if isinstance(error, asyncio.TimeoutError):
                raise TimeoutError("Timeout writing to socket") from None
            if isinstance(error, OSError):
                raise ConnectionError(f"Error while writing to socket: {error}") from error
            raise


class Backoff(EqualJitterBackoff):
    """Pauses between attempts to use Redis; after the last attempt, raises its error.

    `retries` is the number of further attempts outside of `persistent`.
    """

    def __init__(self, retries: int) -> None:
        super().__init__(cap=1, base=0.05)
        self._retries = retries

    def compute(self, failures: int) -> float:
        """Return the pause in seconds after so many failures."""
        error = sys.exc_info()[1]
        left = _give_up.get() - time.monotonic()
        if isinstance(error, AuthenticationError) or (failures > self._retries and left <= 0):
            raise error or ConnectionError("Redis cannot be used")
        pause: float = super().compute(min(failures, 10))
        return min(pause, left) if left > 0 else pause


_HANDSHAKE = Retry(Backoff(0), -1)
_ASYNC_HANDSHAKE = AsyncRetry(Backoff(0), -1)


@contextmanager
def persistent(seconds: float) -> Iterator[None]:
    """Let commands in the block repeat attempts to use Redis for so many seconds, after a lost connection.

    Of blocks inside each other, the longest time counts.
    """
    token = _give_up.set(max(_give_up.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _give_up.reset(token)
