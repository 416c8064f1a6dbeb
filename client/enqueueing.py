"""Queueing a request, unless the job's queue is full."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence

from redis.exceptions import ResponseError

from cluster_serving.client.connection import is_out_of_memory
from cluster_serving.client.errors import QueueFull
from cluster_serving.client.limits import limits_key
from cluster_serving.client.priority import NORMAL, stream_of, streams_of
from cluster_serving.client.scripts import Call, Pause, Procedure, Script, flat

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.004, 0.25

# Counting and adding in one step: of many clients, none can come in between. The result of an earlier request of that
# uri goes last, since after its first write a script may fill a Redis that has reached its memory limit.
_ADD = Script("""
local limit = tonumber(redis.call('HGET', KEYS[1], 'maxQueueLength') or nil)
if limit then
  local length = redis.call('XLEN', KEYS[2]) + redis.call('XLEN', KEYS[3]) + redis.call('XLEN', KEYS[4])
  if length >= limit then return {length, limit} end
end
local id = redis.pcall('XADD', KEYS[5], '*', unpack(ARGV))
if KEYS[6] and type(id) == 'string' then redis.call('DEL', KEYS[6]) end
return id
""")

_LOOK = Script("""
local length = redis.call('XLEN', KEYS[2]) + redis.call('XLEN', KEYS[3]) + redis.call('XLEN', KEYS[4])
return {length, tonumber(redis.call('HGET', KEYS[1], 'maxQueueLength') or length + 1)}
""")


def adding(job: str, fields: Mapping[str, str | bytes], priority: str = NORMAL, earlier_result: str = "") -> Call:
    """The call that queues a request; its reply is the id of the entry, or else see `queue_full`.

    Args:
        job: `jobName`.
        fields: See `client.protocol.request_fields`.
        priority: One of `PRIORITIES`.
        earlier_result: Key of a result to delete, which would be taken for that of this request.
    """
    keys = [*_counted(job), stream_of(job, priority), *([earlier_result] if earlier_result else [])]
    return Call(_ADD, keys, flat(fields))


def queue_full(job: str, reply: Sequence[int]) -> QueueFull:
    """What is wrong if the reply to `adding` is not an entry id."""
    length, limit = reply
    return QueueFull(
        f"the queue of job {job!r} holds {length} requests, and maxQueueLength is {limit}; nothing was queued"
    )


def enqueueing(job: str, call: Call, patience: float) -> Procedure[bytes]:
    """Queue a request as soon as there is room.

    Args:
        job: `jobName`.
        call: From `adding`.
        patience: Seconds to wait for room.

    Returns:
        Id of the entry.

    Raises:
        QueueFull: There was no room in time; nothing was queued.
    """
    give_up = time.monotonic() + patience
    pauses = _pauses()
    while True:
        try:
            reply = yield call
            if isinstance(reply, bytes):
                return reply
            raise queue_full(job, reply)
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
                length, limit = yield Call(_LOOK, _counted(job), [])


def _counted(job: str) -> list[str]:
    return [limits_key(job), *streams_of(job)]


def _pauses() -> Iterator[float]:
    """Longer and longer, and never the same for two clients."""
    pause = _SHORTEST_PAUSE
    while True:
        yield pause * random.uniform(0.5, 1)  # noqa: S311 - no secret
        pause = min(_LONGEST_PAUSE, pause * 1.5)
