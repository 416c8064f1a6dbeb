"""Fetching of results, in the hash of our encoding or in that of the original's; and what a missing one means."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

import redis
import redis.asyncio
from redis.exceptions import RedisError, ResponseError

from cluster_serving.client.cancel import discard_file, withdraw_call
from cluster_serving.client.positions import Position, RecentEntries, search
from cluster_serving.client.result import Result, read_outcome
from cluster_serving.protocol.compat import timeout as time_limit
from cluster_serving.protocol.errors import DeadlineExceeded, RedisUnavailable, RequestLost, ResultTimeout
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.redis.connection import address, foreign_key
from cluster_serving.protocol.results import Fields, encode_error
from cluster_serving.protocol.scripts import HAS_ENTRY, Call, Procedure, fetch_call, fields_of

SCAN_COUNT = 500
"""Number of keys that Redis scans, or deletes, in one command."""

_EXISTS_TIMEOUT = 1.0
_UNKNOWN = "; no job of that name has ever run on this Redis: is it the jobName of config.yaml?"


def fetch(job: str, uri: str, delete: bool) -> Procedure[Fields | None]:
    """Return the result hash of a request, None if there is none; also delete it if asked to."""
    keys = JobKeys(job).results(uri)
    for reply in (yield fetch_call(keys)):
        if isinstance(reply, RedisError):
            raise reply
        if reply:
            # Deleted in a second step, so that a lost reply loses no result. A result that is not deleted expires.
            if delete:
                with suppress(RedisError):
                    yield fetch_call([], keys)
            return fields_of(reply)
    return None


def fetch_queued(job: str, uri: str, position: Position | None, delete: bool) -> Procedure[Fields | None]:
    """Return the result hash as `fetch` does; None while the request waits at its position, or if that is unknown.

    A request whose deadline has passed, and that no slot has read, is withdrawn and answered with `DeadlineExceeded`.

    Raises:
        RequestLost: If there is neither request nor result.
    """
    fields = yield from fetch(job, uri, delete)
    if fields is None and position is not None and time.monotonic() > position.expires:
        error = DeadlineExceeded(f"the request {uri!r} waited longer than its deadline; it was not computed")
        if discard_file((yield withdraw_call(job, uri, position, encode_error(error)))):
            return (yield from fetch(job, uri, delete))
    if fields or position is None or (yield Call(HAS_ENTRY, [position.stream], [position.entry_id])):
        return fields
    # The answer may have come between the two commands.
    fields = yield from fetch(job, uri, delete)
    if fields is None:
        raise request_lost(job)
    return fields


def fetch_recent(job: str, uri: str, recent: RecentEntries, delete: bool) -> Procedure[Fields | None]:
    """Return the result hash as `fetch_queued` does, of a request that others may have queued anew under its uri."""
    try:
        return (yield from fetch_queued(job, uri, recent.find(uri), delete))
    except RequestLost:
        # Such as a dead letter that was put back.
        found = yield from search(job, uri)
        if not found:
            raise
        recent.remember(uri, found[0])
        return None


def batched(keys: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield the keys in lists of at most `size`."""
    remaining = iter(keys)
    while batch := list(islice(remaining, size)):
        yield batch


def stored(db: redis.Redis, job: str) -> dict[bytes, Fields]:
    """Return the result hashes of a job, by key."""
    results: dict[bytes, Fields] = {}
    scan: Any = db.scan_iter(match=JobKeys(job).result_pattern, count=SCAN_COUNT, _type="HASH")
    for keys in batched([key for key in scan if JobKeys(job).uri_of(key) is not None], SCAN_COUNT):
        with db.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hgetall(key)  # type: ignore[arg-type]
            replies = pipeline.execute()
        results.update((key, fields) for key, fields in zip(keys, replies) if fields)
    return results


def results_of(job: str, hashes: Mapping[bytes, Fields], recent: RecentEntries) -> dict[str, Result]:
    """Read result hashes, given by key. Return results by uri, whose requests are forgotten."""
    keys = JobKeys(job)
    results = {keys.uri_of(key) or "": read_outcome(fields) for key, fields in hashes.items()}
    for uri in results:
        recent.forget(uri)
    return results


def request_lost(job: str) -> RequestLost:
    """Return the error for a request that is neither queued nor answered."""
    return RequestLost(
        f"a request to job {job!r} has gone from Redis without a result: Redis lost its data (FLUSHALL, a restart "
        "without persistence, a failover), or another client took the result; send the request again"
    )


def result_timeout(client: redis.Redis, job: str, timeout: float, uri: str, chosen: bool = True) -> ResultTimeout:
    """Return the error for a result that is missing after `timeout` seconds.

    Its message has the uri if the caller has chosen it, and tells if no job of that name has ever run on this Redis, or
    if the job cannot work because of a key of another program.
    """
    hint = ""
    try:
        hint = "" if client.exists(JobKeys(job).slots()) else _UNKNOWN
        client.hlen(JobKeys(job).generations)
    except RedisError as error:
        hint = foreign_key(error) or hint
    return _result_timeout(job, timeout, uri, chosen, hint)


async def result_timeout_async(
    client: redis.asyncio.Redis, job: str, timeout: float, uri: str, chosen: bool = True
) -> ResultTimeout:
    """Return the error for a missing result: the asyncio variant of `result_timeout`.

    Raises:
        RedisUnavailable: If Redis cannot be reached, which explains the missing result.
    """
    hint = ""
    try:
        async with time_limit(_EXISTS_TIMEOUT):
            hint = "" if await client.exists(JobKeys(job).slots()) else _UNKNOWN
            await client.hlen(JobKeys(job).generations)  # type: ignore[misc]
    except ResponseError as error:
        # An access list may forbid the second question.
        hint = foreign_key(error) or hint
    except (RedisError, OSError, asyncio.TimeoutError) as error:
        raise RedisUnavailable(f"Redis at {address(client)} does not answer: {error}") from error
    return _result_timeout(job, timeout, uri, chosen, hint)


def _result_timeout(job: str, timeout: float, uri: str, chosen: bool, hint: str) -> ResultTimeout:
    request = f"no result for {uri!r} of job {job!r}" if chosen else f"no result from job {job!r}"
    error = ResultTimeout(f"{request} within {round(timeout, 2) or timeout:g} s{hint}")
    error.uri = uri
    return error
