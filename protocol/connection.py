"""Redis clients of all processes, and the translation of their errors."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from difflib import get_close_matches
from inspect import signature
from typing import Any, Union

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import EqualJitterBackoff
from redis.connection import HiredisRespSerializer
from redis.exceptions import (
    AuthenticationError,
    ClusterDownError,
    ConnectionError,
    InvalidResponse,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)
from redis.retry import Retry

from cluster_serving.protocol import failover
from cluster_serving.protocol.compat import timeout as time_limit
from cluster_serving.protocol.dedicated import CHECK_TIMEOUT
from cluster_serving.protocol.errors import (
    InvalidInput,
    QueueFull,
    RedisUnavailable,
    RequestLost,
    ResultTimeout,
    ServingError,
)
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.redis_url import HINT, check_login

Client = Union[redis.Redis, redis.asyncio.Redis]

_RETRIES = 3
# A failover takes some seconds. These retries last 2.5 s, and as long again for each attempt to connect.
_FAILOVER_RETRIES = 6
_ASYNC_CONNECTIONS = 16
_EXISTS_TIMEOUT = 1.0
# Seconds of silence after which a connection is checked before its next use.
_CHECK_AFTER = 5.0
# A load balancer that forgets a connection tells neither end. The kernel notices it by itself: seconds of silence
# before it asks, seconds between its questions, their number, and milliseconds without an acknowledgement.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPALIVE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 2000}
_give_up: ContextVar[float] = ContextVar("give_up", default=0.0)
_SCRIPT_LINE = re.compile(r"^(Error running script \(call to \w+\): )?(@user_script: ?\d+: ?)*-?")
# A full disk, too few replicas, a cluster or a replica without its master, or a replica. redis-py 5 has no classes for
# some of them, and none for those that a script meets.
_UNWRITABLE = ("MISCONF", "NOREPLICAS", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "READONLY")
_UNWRITABLE_ERRORS = (ClusterDownError, ReadOnlyError, TryAgainError)


def open_redis(url: str, job: str = "", **settings: Any) -> redis.Redis:
    """Return a client of the Redis at a URL of redis-py or a `failover.FailoverUrl`.

    In a Redis Cluster, `job` determines the node. The settings are further arguments of `redis.Redis`.

    Raises:
        InvalidInput: If the URL cannot be parsed, or cannot be used for this job.
    """
    settings = {"health_check_interval": _CHECK_AFTER, **settings}
    if failover.is_failover_url(url):
        client = redis.Redis.from_pool(redis.ConnectionPool(**_failover_settings(url, job, settings)))
    else:
        _check_url(url)
        client = redis.Redis.from_url(url, **settings)
    _mix_in(_Persistent, client.connection_pool)
    return client


def connect(host: str, port: int | str, url: str | None, job: str = "", **options: Any) -> redis.Redis:
    """Return a client of Redis, at the URL if there is one; connections open at the first command.

    The port may be a str, as the original's default is. See `open_redis` for the other arguments.

    Raises:
        InvalidInput: See `open_redis`; or if an argument of the original has no meaning here.
    """
    settings = _settings(host, url, Retry, options)
    if url:
        return open_redis(url, job, **settings)
    client = redis.Redis(host=host, port=_port(port), **settings)
    _mix_in(_Persistent, client.connection_pool)
    return client


def connect_async(
    host: str = "localhost", port: int | str = 6379, url: str | None = None, job: str = "", **options: Any
) -> redis.asyncio.Redis:
    """Return an asyncio client of Redis: the asyncio variant of `connect`."""
    # Thousands of coroutines share a few connections, and wait for a free one.
    settings = _settings(host, url, AsyncRetry, options) | {"max_connections": _ASYNC_CONNECTIONS, "timeout": None}
    if not url:
        kind = redis.asyncio.SSLConnection if settings.pop("ssl", False) else redis.asyncio.Connection
        pool = redis.asyncio.BlockingConnectionPool(connection_class=kind, host=host, port=_port(port), **settings)
    elif failover.is_failover_url(url):
        pool = redis.asyncio.BlockingConnectionPool(**_failover_settings(url, job, settings, asynchronous=True))
    else:
        _check_url(url)
        pool = redis.asyncio.BlockingConnectionPool.from_url(url, **settings)
    _mix_in(_AsyncPersistent, pool)
    return redis.asyncio.Redis.from_pool(pool)


def _mix_in(base: type, pool: Any) -> None:
    pool.connection_class = type(pool.connection_class.__name__, (base, pool.connection_class), {})


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


def _failover_settings(url: str, job: str, settings: dict[str, Any], asynchronous: bool = False) -> dict[str, Any]:
    try:
        return failover.pool_settings(url, job, settings, asynchronous)
    except ValueError as error:
        raise InvalidInput(str(error)) from None


def _check_url(url: str) -> None:
    try:
        check_login(url)
        redis.connection.parse_url(url)  # type: ignore[no-untyped-call]
    except ValueError:
        # The messages of the libraries may quote a part of a password.
        raise InvalidInput(
            "the url is not an address of Redis; expected redis://user:password@host:6379/0, rediss://… or unix://…; "
            f"{HINT} (urllib.parse.quote)"
        ) from None


def _port(port: int | str) -> int:
    try:
        return int(port)
    except (ValueError, TypeError):
        raise InvalidInput(f"port is {port!r}; expected a number") from None


def _settings(host: str, url: str | None, retry: Any, options: dict[str, Any]) -> dict[str, Any]:
    if "://" in host or "frontend_url" in options:
        raise InvalidInput(
            f"{options.get('frontend_url', host)!r} is not a host: this client connects to Redis, at a host and port "
            "or url=; for an HTTP front end use any HTTP client, or cluster_serving.client.original"
        )
    if "sync" in options:
        raise InvalidInput("there is no sync=; cluster_serving.client.original takes all arguments of the original")
    for name in [name for name in _UNUSABLE if options.get(name)]:
        raise InvalidInput(f"the option {name!r} of redis-py cannot be used here{_UNUSABLE[name]}")
    if url and options.get("ssl"):
        raise InvalidInput("ssl=True goes with host and port; the url of a Redis with TLS begins with rediss://")
    if not (options.get("ssl") or (url or "").lower().startswith("rediss")):
        for name, value in options.items():
            if name.startswith("ssl_") and value is not None:
                raise InvalidInput(f"the option {name!r} needs ssl=True, or a url of rediss://")
        options = {name: value for name, value in options.items() if not name.startswith("ssl_")}
    known = _OPTIONS[Retry]
    for name in options.keys() & known - _OPTIONS[retry]:
        raise InvalidInput(f"asyncio clients, and predict_many, have no option {name!r}")
    for name in options.keys() - known:
        near = get_close_matches(name, {*known, "name", "url", "reconnect"}, 1)
        raise InvalidInput(f"there is no option {name!r}{f'; is it {near[0]!r}?' if near else ''}")
    retries = _FAILOVER_RETRIES if url and failover.is_failover_url(url) else _RETRIES
    return {
        # XADD is not idempotent, but a request that is queued twice keeps its uri and gets the same result twice.
        # A command that timed out is repeated within `persistent` alone: elsewhere repetition would multiply the time
        # that the caller waits.
        "retry_on_error": [ConnectionError],
        "health_check_interval": _CHECK_AFTER,
        "socket_connect_timeout": 5.0,
        "socket_timeout": 5.0,
        # Newer redis-py releases default to RESP3, and then negotiate features that are not used here.
        "protocol": 2,
        **options,
        # The pauses end the attempts.
        "retry": retry(_Backoff(retries), -1),
    }


_UNUSABLE = {
    "decode_responses": ": results are bytes",
    "unix_socket_path": ": pass url='unix:///path/of/the/socket'",
    **dict.fromkeys(("charset", "connection_pool", "errors", "single_connection_client"), ""),
}
"""Options of redis-py that have no meaning here, and the reason or remedy."""

_OPTIONS = {
    Retry: {*signature(redis.Redis).parameters, *signature(redis.connection.AbstractConnection).parameters},
    AsyncRetry: {
        *("ssl", "max_connections"),
        *signature(redis.asyncio.Connection).parameters,
        *signature(redis.asyncio.SSLConnection).parameters,
        *signature(redis.asyncio.connection.AbstractConnection).parameters,
    },
}
"""Options of the clients and connections of either kind."""


class _Backoff(EqualJitterBackoff):
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


_HANDSHAKE = Retry(_Backoff(0), -1)
_ASYNC_HANDSHAKE = AsyncRetry(_Backoff(0), -1)


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


class RetryBudget:
    """Seconds for which a lost connection is waited out, counted from the first sign of it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lost_since: float | None = None

    @property
    def left(self) -> float:
        """Seconds that are left; all of them while no connection is lost."""
        passed = time.monotonic() - self._lost_since if self._lost_since is not None else 0.0
        return max(0.0, self._seconds - passed)

    @contextmanager
    def watching(self, waits: bool = True) -> Iterator[None]:
        """Note whether the block, which raises errors of Redis as `translated` does, has lost the connection.

        A block that `waits` for Redis, with `persistent`, uses up the seconds. One that does not may have waited for a
        connection that was dead, and Redis may be there.
        """
        began = time.monotonic()
        try:
            yield
        except ServingError as error:
            if self._lost_since is None and is_lost_connection(error):
                now = time.monotonic()
                self._lost_since = max(began, now - self._seconds) if waits else now
            raise
        self._lost_since = None


@contextmanager
def translated(client: Client) -> Iterator[None]:
    """Translate Redis errors into `RedisUnavailable`, `QueueFull` and `ServingError`."""
    try:
        yield
    except (AuthenticationError, ConnectionError, TimeoutError) as error:
        raise RedisUnavailable(f"cannot use Redis at {address(client)}: {error}") from error
    except InvalidResponse as error:
        raise RedisUnavailable(f"the server at {address(client)} does not answer as Redis does: {error}") from None
    except ResponseError as error:
        # Redis 6.2 prefixes an error in a script with its line.
        text = _SCRIPT_LINE.sub("", str(error))
        if is_out_of_memory(error):
            raise QueueFull(
                f"Redis at {address(client)} has reached its memory limit and takes no more requests: {text}"
            ) from None
        if isinstance(error, _UNWRITABLE_ERRORS) or any(code in str(error) for code in _UNWRITABLE):
            raise RedisUnavailable(f"Redis at {address(client)} takes no writes: {text}") from error
        raise ServingError(f"Redis at {address(client)} refused a command: {error}") from error


def is_lost_connection(error: ServingError) -> bool:
    """Return True for an error of `translated` that a new connection may mend."""
    cause = error.__cause__
    return isinstance(cause, (ConnectionError, TimeoutError)) and not isinstance(cause, AuthenticationError)


def is_out_of_memory(error: ResponseError) -> bool:
    """Return True if Redis refused a command, also in a script, because its memory limit is reached."""
    return isinstance(error, OutOfMemoryError) or _SCRIPT_LINE.sub("", str(error)).startswith("OOM ")


def address(client: Client) -> str:
    """Return the address that a client connects to, without secrets."""
    settings = client.connection_pool.connection_kwargs
    if finder := settings.get("finder"):
        return str(finder)
    return f"{settings.get('host', settings.get('path', '?'))}:{settings.get('port', '')}"


def request_lost(job: str) -> RequestLost:
    """Return the error for a request that is neither queued nor answered."""
    return RequestLost(
        f"a request to job {job!r} has gone from Redis without a result: Redis lost its data (FLUSHALL, a restart "
        "without persistence, a failover), or another client took the result; send the request again"
    )


def result_timeout(client: redis.Redis, job: str, timeout: float, uri: str, chosen: bool = True) -> ResultTimeout:
    """Return the error for a result that is missing after `timeout` seconds.

    Its message has the uri if the caller has chosen it, and tells if no job of that name has ever run on this Redis.
    """
    try:
        known = bool(client.exists(JobKeys(job).slots()))
    except RedisError:
        known = True
    return _result_timeout(job, timeout, uri, chosen, known)


async def result_timeout_async(
    client: redis.asyncio.Redis, job: str, timeout: float, uri: str, chosen: bool = True
) -> ResultTimeout:
    """Return the error for a missing result: the asyncio variant of `result_timeout`.

    Raises:
        RedisUnavailable: If Redis cannot be reached, which explains the missing result.
    """
    try:
        async with time_limit(_EXISTS_TIMEOUT):
            known = bool(await client.exists(JobKeys(job).slots()))
    except ResponseError:
        known = True
    except (RedisError, OSError, asyncio.TimeoutError) as error:
        raise RedisUnavailable(f"Redis at {address(client)} does not answer: {error}") from error
    return _result_timeout(job, timeout, uri, chosen, known)


def _result_timeout(job: str, timeout: float, uri: str, chosen: bool, known: bool) -> ResultTimeout:
    request = f"no result for {uri!r} of job {job!r}" if chosen else f"no result from job {job!r}"
    hint = "" if known else "; no job of that name has ever run on this Redis: is it the jobName of config.yaml?"
    error = ResultTimeout(f"{request} within {timeout:g} s{hint}")
    error.uri = uri
    return error
