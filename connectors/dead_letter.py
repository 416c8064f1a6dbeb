"""Dead letters: requests that were given up, kept for people to look at."""

from __future__ import annotations

import time

import redis

from cluster_serving.client.errors import ServingError
from cluster_serving.client.protocol import Entry, dead_letters_key, encode_error
from cluster_serving.connectors.answer import Answer, write_answers

MAX_DEAD_LETTERS = 1000
"""The oldest dead letters make room for new ones."""

MAX_PAYLOAD_BYTES = 1 << 20
"""Longer payloads are not kept, so that a broken model cannot fill Redis."""


def bury(client: redis.Redis, job: str, ttl_s: int, entry: Entry, error: ServingError) -> None:
    """Keep a request as a dead letter in the stream `<jobName>:dead`, and answer it with the error.

    Args:
        client: Connection to the job's Redis.
        job: `jobName`.
        ttl_s: Seconds that the answer is kept; the dead letter stays.
        entry: The request.
        error: Why it is given up.

    Raises:
        redis.RedisError: The request is still pending.
    """
    letter: dict[str, str | bytes | float] = {
        "uri": entry.uri.encode("utf8", "surrogateescape"),
        "data": entry.data if len(entry.data) <= MAX_PAYLOAD_BYTES else b"",
        "bytes": len(entry.data),
        "serde": entry.serde,
        "entry": entry.id,
        "code": error.code,
        "error": str(error),
        "time": time.time(),
    }
    client.xadd(dead_letters_key(job), letter, maxlen=MAX_DEAD_LETTERS, approximate=True)  # type: ignore[arg-type]
    write_answers(client, job, ttl_s, [Answer(entry, "", encode_error(error))])
