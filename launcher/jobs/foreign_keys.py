"""Keys of another program in Redis under names that a job needs: nothing works until one of them has another name."""

from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.keys import JobKeys


def types_of(keys: JobKeys) -> dict[str, str]:
    """Return the type in Redis of each lasting key of a job."""
    streams = [*keys.streams, keys.dead_letters, keys.events, keys.history]
    others = {keys.callback_times: "zset", keys.control: "list", keys.answered: "string"}
    hashes = {name: "hash" for name in keys.lasting() if name not in {*streams, *others}}
    return {**dict.fromkeys(streams, "stream"), **others, **hashes}


def told(client: Any, job: str) -> str:
    """Return the message about keys of other types than the job's; empty if there are none. Replies are text."""
    expected = types_of(JobKeys(job))
    with client.pipeline(transaction=False) as pipeline:
        for key in expected:
            pipeline.type(key)
        # An access list that is made for the job alone forbids the question.
        types = pipeline.execute(raise_on_error=False)
    found = [
        f"{key!r} is a {kind}, and has to be a {expected[key]}"
        for key, kind in zip(expected, types, strict=True)
        if isinstance(kind, str) and kind not in ("none", expected[key])
    ]
    if not found:
        return ""
    return (
        f"Redis has keys of another program under names of job {job}: {'; '.join(found)}. Choose another jobName, or "
        "remove them (redis-cli DEL) if nothing needs them"
    )


def refuse(client: Any, job: str) -> None:
    """Refuse a job some of whose keys are another program's.

    Raises:
        ServingError: If there are such keys; the message names them.
    """
    if text := told(client, job):
        raise ServingError(text)


def explain(client: Any, job: str, error: RedisError) -> None:
    """Raise an error that names the keys of another program, if they are the reason for an error of Redis."""
    if "WRONGTYPE" in str(error):
        with suppress(RedisError):
            refuse(client, job)
