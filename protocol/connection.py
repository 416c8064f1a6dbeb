"""Redis connections of the clients, and what their failures mean."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialBackoff
from redis.connection import HiredisRespSerializer
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    InvalidResponse,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
)
from redis.retry import Retry

from cluster_serving.protocol import failover
from cluster_serving.protocol.errors import InvalidInput, QueueFull, RedisUnavailable, ServingError

_RETRIES = 3
_SCRIPT_LINE = re.compile(r"^@user_script: ?\d+: -?")
# A full disk, too few replicas, a cluster or a replica that lacks its master.
_NOT_NOW = ("MISCONF", "NOREPLICAS", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN")
# A failover takes its seconds: these are 2.5 of them, and as much again for each attempt to connect.
_FAILOVER_RETRIES = 6
_ASYNC_CONNECTIONS = 16


def open_redis(url: str, job: str = "", **settings: Any) -> redis.Redis:
    """Make a client of the Redis at a URL, be it redis-py's or a `failover.FailoverUrl`.

    Args:
        url: Where Redis is.
        job: `jobName`; where its keys are, in a Redis Cluster.
        settings: Further arguments of `redis.Redis`.

    Raises:
        InvalidInput: The URL cannot be read, or not be used for this job.
    """
    if not failover.is_failover_url(url):
        return redis.Redis.from_url(url, **settings)
    return redis.Redis.from_pool(redis.ConnectionPool(**_found(url, job, settings)))


def connect(host: str, port: int | str, url: str | None, job: str = "", **options: Any) -> redis.Redis:
    """Make a client of Redis; connections open when first used.

    Args:
        host: Host name, used unless `url` is given.
        port: Port number, as int or str (the original's default is a str).
        url: `redis://[user:password@]host:port/db`, `rediss://` for TLS, or a `failover.FailoverUrl`.
        job: See `open_redis`.
        options: Further arguments of `redis.Redis`.

    Raises:
        InvalidInput: See `open_redis`; or an argument is one of the original's that means nothing here.
    """
    _check(host, options)
    retry = Retry(ExponentialBackoff(cap=1, base=0.05), _retries(url))
    settings = _settings(options) | {"retry": retry}
    if url:
        return open_redis(url, job, **settings)
    return redis.Redis(host=host, port=int(port), **settings)


def connect_async(
    host: str = "localhost", port: int | str = 6379, url: str | None = None, job: str = "", **options: Any
) -> redis.asyncio.Redis:
    """The asyncio variant of `connect`."""
    _check(host, options)
    settings = _settings(options) | {"retry": AsyncRetry(ExponentialBackoff(cap=1, base=0.05), _retries(url))}
    # Thousands of coroutines share a few connections, and wait for one.
    settings |= {"max_connections": _ASYNC_CONNECTIONS, "timeout": None}
    if not url:
        pool = redis.asyncio.BlockingConnectionPool(host=host, port=int(port), **settings)
    elif failover.is_failover_url(url):
        pool = redis.asyncio.BlockingConnectionPool(**_found(url, job, settings, asynchronous=True))
    else:
        pool = redis.asyncio.BlockingConnectionPool.from_url(url, **settings)
    pool.connection_class = _packed_in_c(pool.connection_class)
    return redis.asyncio.Redis.from_pool(pool)


class _PackedInC:
    """Of redis-py's connections, those of asyncio write their commands in Python, which takes ten times as long."""

    _pack = HiredisRespSerializer().pack

    def pack_command(self, *args: Any) -> list[bytes]:
        packed: list[bytes] = self._pack(*args)
        return packed


def _packed_in_c(connection_class: type) -> type:
    return type(connection_class.__name__, (_PackedInC, connection_class), {})


def _found(url: str, job: str, settings: dict[str, Any], asynchronous: bool = False) -> dict[str, Any]:
    try:
        return failover.pool_settings(url, job, settings, asynchronous)
    except ValueError as error:
        raise InvalidInput(str(error)) from None


def _retries(url: str | None) -> int:
    return _FAILOVER_RETRIES if url and failover.is_failover_url(url) else _RETRIES


def _check(host: str, options: dict[str, Any]) -> None:
    if "://" in host or "frontend_url" in options:
        raise InvalidInput(
            f"{options.get('frontend_url', host)!r} is no host: this client asks Redis, at a host and port or url=; "
            "an HTTP front end is asked with any HTTP client, or with cluster_serving.client.original"
        )
    if "sync" in options:
        raise InvalidInput("there is no sync=; cluster_serving.client.original takes all arguments of the original")


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    # XADD is not idempotent, but a request keeps its uri: queued twice, it is answered twice with the same result.
    # A Redis that hangs is not asked again: that would multiply the time that the caller waits.
    return {"retry_on_error": [ConnectionError], "socket_connect_timeout": 5.0, "socket_timeout": 5.0} | options


@contextmanager
def translated(client: redis.Redis | redis.asyncio.Redis) -> Iterator[None]:
    """Turn Redis errors into `RedisUnavailable` and `QueueFull`."""
    try:
        yield
    except (AuthenticationError, ConnectionError, TimeoutError) as error:
        raise RedisUnavailable(f"cannot use Redis at {address(client)}: {error}") from error
    except InvalidResponse as error:
        raise RedisUnavailable(f"what listens at {address(client)} does not answer as Redis: {error}") from None
    except ResponseError as error:
        # Of an error in a script, Redis 6.2 also gives the line.
        text = _SCRIPT_LINE.sub("", str(error))
        if is_out_of_memory(error):
            raise QueueFull(
                f"Redis at {address(client)} has reached its memory limit and takes no more requests: {text}"
            ) from None
        if any(word in str(error) for word in _NOT_NOW) or isinstance(error, ReadOnlyError):
            raise RedisUnavailable(f"Redis at {address(client)} takes no writes: {text}") from error
        raise ServingError(f"Redis at {address(client)} refused a command: {error}") from error


def is_out_of_memory(error: ResponseError) -> bool:
    """Whether Redis refused a command, or that of a script, because its memory limit is reached."""
    return isinstance(error, OutOfMemoryError) or _SCRIPT_LINE.sub("", str(error)).startswith("OOM ")


def address(client: redis.Redis | redis.asyncio.Redis) -> str:
    """Where a client connects to, without secrets."""
    settings = client.connection_pool.connection_kwargs
    if finder := settings.get("finder"):
        return str(finder)
    return f"{settings.get('host', settings.get('path', '?'))}:{settings.get('port', '')}"
