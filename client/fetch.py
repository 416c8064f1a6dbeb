"""Fetching of results, which are in the hash of our encoding or in that of the original's."""

from __future__ import annotations

import time
from contextlib import suppress

from redis.exceptions import RedisError

from cluster_serving.client.cancel import discard_file, withdraw_call
from cluster_serving.client.missing import request_lost
from cluster_serving.client.positions import Position, RecentEntries, search
from cluster_serving.protocol.errors import DeadlineExceeded, RequestLost
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.results import Fields, encode_error
from cluster_serving.protocol.scripts import HAS_ENTRY, Call, Procedure, fetch_call, fields_of


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
