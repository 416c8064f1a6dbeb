"""What a client says when no result came: the one mistake that nothing else would tell is a wrong `jobName`."""

from __future__ import annotations

import asyncio

import redis
import redis.asyncio
from redis.exceptions import RedisError, ResponseError

from cluster_serving.protocol.connection import address
from cluster_serving.protocol.errors import RedisUnavailable, ResultTimeout
from cluster_serving.protocol.keys import slots_key

_PATIENCE = 1.0


def result_timeout(client: redis.Redis, job: str, timeout: float, uri: str = "") -> ResultTimeout:
    """The error for a result that has not come; asks Redis whether there has ever been such a job.

    Args:
        client: Connection to the job's Redis.
        job: `jobName`.
        timeout: Seconds that were waited.
        uri: The request, if its caller knows it by that name.
    """
    try:
        known = bool(client.exists(slots_key(job)))
    except RedisError:
        known = True
    return _error(job, timeout, uri, known)


async def result_timeout_async(client: redis.asyncio.Redis, job: str, timeout: float, uri: str = "") -> ResultTimeout:
    """The asyncio variant of `result_timeout`.

    Raises:
        RedisUnavailable: Redis cannot be reached: no wonder.
    """
    try:
        async with asyncio.timeout(_PATIENCE):
            known = bool(await client.exists(slots_key(job)))
    except ResponseError:
        known = True
    except (RedisError, OSError) as error:
        raise RedisUnavailable(f"Redis at {address(client)} does not answer: {error}") from error
    return _error(job, timeout, uri, known)


def _error(job: str, timeout: float, uri: str, known: bool) -> ResultTimeout:
    what = f"no result for {uri!r} of job {job!r}" if uri else f"no result from job {job!r}"
    hint = "" if known else "; no job of that name has ever run on this Redis: is it the jobName of config.yaml?"
    return ResultTimeout(f"{what} within {timeout:g} s{hint}")
