"""Giving requests up: they are kept as dead letters, for people to look at."""

from __future__ import annotations

import redis

from cluster_serving.connectors.answer import Answer, write_answers
from cluster_serving.protocol.dead_letters import DeadLetter
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.results import encode_error


def bury(client: redis.Redis, job: str, ttl_s: int, entry: Entry, error: ServingError, traceback: str = "") -> None:
    """Keep a request as a dead letter in the stream `<jobName>:dead` and answer it with the error, in one step.

    Args:
        client: Connection to the job's Redis.
        job: `jobName`.
        ttl_s: Seconds that the answer is kept; the dead letter stays.
        entry: The request.
        error: Why it is given up.
        traceback: The last Python traceback of its attempts, if there is one.

    Raises:
        redis.RedisError: The request is still pending.
    """
    letter = DeadLetter.of(entry, error, traceback)
    write_answers(client, job, ttl_s, [Answer(entry, "", encode_error(error))], [letter])
