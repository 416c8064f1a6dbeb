"""Queueing a request, unless the job's queue is full."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import redis
import redis.asyncio
from redis.exceptions import RedisError, ResponseError

from cluster_serving.client.cancel import Place
from cluster_serving.client.request_options import RequestOptions
from cluster_serving.protocol.connection import is_out_of_memory, translated
from cluster_serving.protocol.entry import request_fields
from cluster_serving.protocol.errors import QueueFull, ServingError
from cluster_serving.protocol.inputs import Input
from cluster_serving.protocol.keys import NORMAL, limits_key, result_key, stream_of, streams_of
from cluster_serving.protocol.payload_files import PayloadFolders
from cluster_serving.protocol.scripts import ADD, QUEUE_LENGTH, Argument, Call, Pause, Procedure, flat

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.004, 0.25


def adding(job: str, requests: Iterable[tuple[Mapping[str, str | bytes], str]], earlier_result: str = "") -> Call:
    """The call that queues requests; its reply has the entry id of each, or what `refusal` reads.

    Args:
        job: `jobName`.
        requests: Fields (see `protocol.entry.request_fields`) and priority of each; at most a few MiB, since Redis
            serves nobody else meanwhile.
        earlier_result: Key of a result to delete, which would be taken for that of the first request.
    """
    keys = [limits_key(job), *streams_of(job), *([earlier_result] if earlier_result else [])]
    arguments: list[Argument] = []
    for fields, priority in requests:
        # Where its stream is among the keys; Lua counts from 1.
        arguments += [keys.index(stream_of(job, priority)) + 1, 2 * len(fields), *flat(fields)]
    return Call(ADD, keys, arguments)


def refusal(client: redis.Redis | redis.asyncio.Redis, job: str, reply: Exception | Sequence[int]) -> ServingError:
    """What is wrong if a reply to `adding` is no entry id; an object of its own, since errors collect tracebacks."""
    if not isinstance(reply, Exception):
        return _queue_full(job, reply)
    if isinstance(reply, ServingError):
        return reply.renewed()
    try:
        with translated(client):
            raise reply
    except ServingError as error:
        return error


def enqueueing(
    job: str,
    uri: str,
    inputs: Mapping[str, Input],
    options: RequestOptions,
    folders: PayloadFolders,
    reply_to: str = "",
) -> Procedure[Place]:
    """Queue a request as soon as there is room.

    Args:
        job: `jobName`.
        uri: The client's name for the request; unless there is a `reply_to`, an earlier result of it is deleted.
        inputs: See `client.convert.to_inputs`.
        options: How it is queued.
        folders: Where large inputs may be left.
        reply_to: See `protocol.entry.request_fields`.

    Returns:
        Where it is.

    Raises:
        InvalidInput: The uri or an input cannot be sent; nothing was queued.
        QueueFull: There was no room in time; nothing was queued.
    """
    folder = yield from folders.find(job, inputs)
    fields = request_fields(uri, inputs, reply_to, options.deadline_ms, store=folder.write if folder else None)
    priority = options.priority or NORMAL
    call = adding(job, [(fields, priority)], earlier_result="" if reply_to else result_key(job, uri))
    try:
        entry_id = yield from _adding_in_time(job, call, options.patience)
    except (QueueFull, RedisError, asyncio.CancelledError, KeyboardInterrupt) as error:
        folders.clean_up(job, folder, fields, error)
        raise
    return Place(stream_of(job, priority), entry_id)


def _adding_in_time(job: str, call: Call, patience: float) -> Procedure[bytes]:
    give_up = time.monotonic() + patience
    pauses = _pauses()
    while True:
        try:
            (reply,) = yield call
            if isinstance(reply, bytes):
                return reply
            raise reply if isinstance(reply, ResponseError) else _queue_full(job, reply)
        except (QueueFull, ResponseError) as error:
            if not isinstance(error, QueueFull) and not is_out_of_memory(error):
                raise
            # To look is cheap, to send a request again that is refused is not.
            length, limit = 1, 1
            while length >= limit:
                left = give_up - time.monotonic()
                if left <= 0:
                    raise
                yield Pause(min(next(pauses), left))
                length, limit = yield Call(QUEUE_LENGTH, call.keys[:4])


def _queue_full(job: str, reply: Sequence[int]) -> QueueFull:
    length, limit = reply
    return QueueFull(
        f"the queue of job {job!r} holds {length} requests, and maxQueueLength is {limit}; nothing was queued"
    )


def _pauses() -> Iterator[float]:
    """Longer and longer, and never the same for two clients."""
    pause = _SHORTEST_PAUSE
    while True:
        yield pause * random.uniform(0.5, 1)  # noqa: S311 - no secret
        pause = min(_LONGEST_PAUSE, pause * 1.5)
