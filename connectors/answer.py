"""What a request is answered with, and how that is written to Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import redis

from cluster_serving.client import image_stream
from cluster_serving.client.protocol import GROUP, Entry, result_key


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request is answered with.

    Attributes:
        entry: The request.
        lane_id: The lane it came on.
        fields: Fields of the result hash.
    """

    entry: Entry
    lane_id: str
    fields: Mapping[str, str | bytes]


def write_answers(client: redis.Redis, job: str, ttl_s: int, answers: Sequence[Answer]) -> None:
    """Write answers, and all that makes their requests answered, in one MULTI.

    Result, expiry, acknowledgement, deletion from the stream and the wake-up of the waiting client happen together: a
    request is either still pending or answered, whatever crashes. Writing an answer again does no harm.

    Args:
        client: Connection to the job's Redis.
        job: `jobName`: stream and prefix of the result keys.
        ttl_s: Seconds that the results are kept.
        answers: At least one.

    Raises:
        redis.RedisError: Nothing was written.
    """
    with client.pipeline(transaction=True) as pipeline:
        for answer in answers:
            entry = answer.entry
            uri = entry.uri.encode("utf8", "surrogateescape")
            key, fields = result_key(job, "").encode() + uri, answer.fields
            if image_stream.sent(job, entry):
                key, fields = image_stream.result_key("").encode() + uri, image_stream.result_fields(fields)
            # A hash left by an earlier request of the same uri may hold fields that this one does not.
            pipeline.delete(key)
            pipeline.hset(key, mapping=fields)  # type: ignore[arg-type]
            pipeline.expire(key, ttl_s)
            pipeline.publish(entry.reply_to.encode("utf8", "surrogateescape") or key, uri)
        ids = [answer.entry.id for answer in answers]
        pipeline.xack(job, GROUP, *ids)
        pipeline.xdel(job, *ids)
        pipeline.execute()
