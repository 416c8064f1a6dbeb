"""Generations of a job in its Redis, as the commands change them (`protocol.generations`).

All clients have replies as text.
"""

from __future__ import annotations

import time
from typing import Any, cast

import redis
from redis.exceptions import ResponseError

from cluster_serving.job.options import JobOptions
from cluster_serving.protocol.generations import LAST, Generation, Generations
from cluster_serving.protocol.keys import GROUP, JobKeys
from cluster_serving.protocol.scripts import PUT_FIELDS, RELEASE, SWITCH, Argument, Call, call


def read(client: redis.Redis, job: str) -> Generations:
    """Return the generations of a job."""
    # redis-py declares one type for its blocking and its asyncio client.
    return Generations.read(cast("dict[str, str]", client.hgetall(JobKeys(job).generations)))


def of(options: JobOptions, role: str, share: float = 0.0) -> Generation:
    """Return the record of the generation that the options start."""
    redis = options.redis
    return Generation(redis.generation, role, options.submission, redis.version, redis.numbered, share, time.time())


def begin(client: redis.Redis, job: str, generation: Generation) -> None:
    """Write the record of a generation that starts alone; all earlier ones have ended."""
    earlier = read(client, job).all
    # First: a slot that still runs would find no generation that reads, and refuse requests that name a version.
    put(client, job, generation)
    for number in earlier:
        end(client, job, number)


def next_number(client: redis.Redis, job: str) -> int:
    """Return a number that no generation of the job has had."""
    known = read(client, job)
    last = max(known.last, *known.all, 0)
    call(client, Call(PUT_FIELDS, [JobKeys(job).generations], ["some", LAST, last + 1]))
    return last + 1


def put(client: redis.Redis, job: str, generation: Generation) -> None:
    """Write the record of a generation."""
    fields = [str(generation.number), generation.to_json()]
    call(client, Call(PUT_FIELDS, [JobKeys(job).generations], ["some", *fields]))


def switch(client: redis.Redis, job: str, generation: Generation, before: Generation | None) -> None:
    """Let a generation serve in place of the one before; both records have their new roles already."""
    records: list[Argument] = []
    for each in filter(None, (generation, before)):
        records += [str(each.number), each.to_json()]
    old = before.number if before else 0
    keys = JobKeys(job)
    changed = [keys.generations, keys.slots(), keys.slots(generation.number), keys.slots(old)]
    call(client, Call(SWITCH, changed, records))


def end(client: redis.Redis, job: str, number: int) -> None:
    """Remove a generation that has ended; the slots of the others take over what it has left unanswered, at once."""
    release(client, job, number)
    keys = JobKeys(job)
    client.hdel(keys.generations, str(number))
    client.delete(*keys.of_generation(number))


def release(client: redis.Redis, job: str, number: int) -> None:
    """Leave what the slots of a generation have not answered to the slots of the others."""
    keys = JobKeys(job)
    consumers = [name for name in _pending(client, job) if keys.generation_of(name) == number]
    _release(client, job, [*consumers, keys.left_for(number)], keys.left_behind)


def hand_over(client: redis.Redis, job: str, number: int, to: int) -> None:
    """Leave the requests that were left for a generation to another one."""
    keys = JobKeys(job)
    _release(client, job, [keys.left_for(number)], keys.left_for(to))


def _release(client: redis.Redis, job: str, consumers: list[str], to: str) -> None:
    # A stream or a group is missing if the job has never run, or if Redis has lost it, and the requests with it.
    keys = JobKeys(job)
    present = [stream for stream in keys.streams if client.exists(stream) and client.xinfo_groups(stream)]
    call(client, Call(RELEASE, [keys.generations, *present], [GROUP, to, *consumers]))


def unanswered(client: redis.Redis, job: str, number: int) -> int:
    """Return the number of requests that the slots of a generation have read and not answered."""
    return sum(count for name, count in _pending(client, job).items() if JobKeys(job).generation_of(name) == number)


def _pending(client: redis.Redis, job: str) -> dict[str, int]:
    """Return the consumers of a job, each with the number of its pending entries in all streams."""
    found: dict[str, int] = {}
    for stream in JobKeys(job).streams:
        try:
            consumers: Any = client.xinfo_consumers(stream, GROUP)
        except ResponseError:
            # There is no such stream, or no group.
            continue
        for consumer in consumers:
            found[consumer["name"]] = found.get(consumer["name"], 0) + consumer["pending"]
    return found
