"""The errors for a result that does not come."""

from __future__ import annotations

import asyncio

import redis
import redis.asyncio
from redis.exceptions import RedisError, ResponseError

from cluster_serving.protocol.compat import timeout as time_limit
from cluster_serving.protocol.connection import address
from cluster_serving.protocol.errors import RedisUnavailable, RequestLost, ResultTimeout
from cluster_serving.protocol.keys import JobKeys

_EXISTS_TIMEOUT = 1.0


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
