"""The end of the queue of a model that has gone from its job: each of its requests is answered."""

from __future__ import annotations

import time
from typing import Any

from redis.exceptions import ResponseError

from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.services import redis_server
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.hosting.orders import removed
from cluster_serving.protocol.keys import GROUP, JobKeys, to_text
from cluster_serving.protocol.scripts import NEWEST, RETIRE, Call, call, page_call

_TOLD_S = 24 * 3600
"""Seconds for which clients are told that a model was removed; after them, it is a name that no job has."""

_LONGEST_S = 5.0
"""Seconds for which requests are answered that clients add by themselves, without our script."""


def answer(config: Config, name: str) -> int:
    """Answer the requests that wait for a model which no slot serves any more, refuse others, and remove its keys.

    Dead letters stay. Return the number of requests that are left, with the keys; 0 in all but rare cases.

    Raises:
        redis.RedisError: If Redis does not take it.
    """
    job = config.job_name
    end = time.monotonic() + _LONGEST_S
    with redis_server.connect(config, decode=False) as client:
        while (left := _close(client, name, job)) and time.monotonic() < end:
            for stream in JobKeys(name).streams:
                _answer(client, name, stream, removed(name, job))
    return left


def _close(client: Any, name: str, job: str) -> int:
    """Refuse further requests to a model, and remove its keys unless requests are left, of which return the number."""
    keys = JobKeys(name)
    kept = (keys.limits, keys.dead_letters, *keys.streams)
    others = [key for key in keys.lasting(()) if key not in kept]
    return int(call(client, Call(RETIRE, [keys.limits, *keys.streams, *others], [str(removed(name, job)), _TOLD_S])))


def _answer(client: Any, name: str, stream: str, error: ServingError) -> None:
    # Imported here: numpy and the client take longer than a command that removes no model.
    from cluster_serving.client.cancel import discard_file, withdraw_call
    from cluster_serving.client.positions import Position
    from cluster_serving.protocol.results import encode_error

    try:
        # A read that began before the slots left the model may have delivered requests, which nothing computes.
        client.xgroup_destroy(stream, GROUP)
    except ResponseError:
        # There is no such stream.
        return
    last = NEWEST
    while last:
        last, found = call(client, page_call(stream, last, "uri"))
        for entry_id, uri in found:
            position = Position(stream, entry_id)
            discard_file(call(client, withdraw_call(name, to_text(uri), position, encode_error(error))))
