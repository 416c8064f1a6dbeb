"""Redis clients of all processes, and the translation of their errors."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Union

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.exceptions import (
    AuthenticationError,
    ClusterDownError,
    ConnectionError,
    InvalidResponse,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)
from redis.retry import Retry

from cluster_serving.protocol.errors import QueueFull, RedisUnavailable, ServingError
from cluster_serving.protocol.redis import addresses
from cluster_serving.protocol.redis.options import checked_url, failover_settings, port_of, settings_of
from cluster_serving.protocol.redis.reconnecting import CHECK_AFTER, watch_over

Client = Union[redis.Redis, redis.asyncio.Redis]

_ASYNC_CONNECTIONS = 16
_FOREIGN_KEY = "; another program has a key of the job's name, and cluster-serving-cli doctor names it and what to do"
_UNPROTECTED = "; that Redis has none: leave it out of the address"
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
    settings = {"health_check_interval": CHECK_AFTER, **settings}
    if addresses.is_failover_url(url):
        client = redis.Redis.from_pool(redis.ConnectionPool(**failover_settings(url, job, settings)))
    else:
        client = redis.Redis.from_url(checked_url(url), **settings)
    watch_over(client.connection_pool)
    return client


def connect(host: str, port: int | str, url: str | None, job: str = "", **options: Any) -> redis.Redis:
    """Return a client of Redis, at the URL if there is one; connections open at the first command.

    The port may be a str, as the original's default is. See `open_redis` for the other arguments.

    Raises:
        InvalidInput: See `open_redis`; or if an argument of the original has no meaning here.
    """
    settings = settings_of(host, url, Retry, options)
    if url:
        return open_redis(url, job, **settings)
    client = redis.Redis(host=host, port=port_of(port), **settings)
    watch_over(client.connection_pool)
    return client


def connect_async(
    host: str = "localhost", port: int | str = 6379, url: str | None = None, job: str = "", **options: Any
) -> redis.asyncio.Redis:
    """Return an asyncio client of Redis: the asyncio variant of `connect`."""
    # Thousands of coroutines share a few connections, and wait for a free one.
    settings = settings_of(host, url, AsyncRetry, options) | {"max_connections": _ASYNC_CONNECTIONS, "timeout": None}
    if not url:
        kind = redis.asyncio.SSLConnection if settings.pop("ssl", False) else redis.asyncio.Connection
        pool = redis.asyncio.BlockingConnectionPool(connection_class=kind, host=host, port=port_of(port), **settings)
    elif addresses.is_failover_url(url):
        pool = redis.asyncio.BlockingConnectionPool(**failover_settings(url, job, settings, asynchronous=True))
    else:
        pool = redis.asyncio.BlockingConnectionPool.from_url(checked_url(url), **settings)
    watch_over(pool, asynchronous=True)
    return redis.asyncio.Redis.from_pool(pool)


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
        remedy = _UNPROTECTED if "without any password" in str(error) else ""
        raise RedisUnavailable(f"cannot use Redis at {address(client)}: {error}{remedy}") from error
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
        raise ServingError(f"Redis at {address(client)} refused a command: {error}{foreign_key(error)}") from error


def foreign_key(error: Exception) -> str:
    """Return what to do if an error of Redis is due to a key of another program; otherwise nothing."""
    return _FOREIGN_KEY if "WRONGTYPE" in str(error) else ""


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
