"""What a request is answered with, and how that is written to Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import redis
from redis.exceptions import OutOfMemoryError

from cluster_serving.client import image_stream
from cluster_serving.client.dead_letters import DeadLetter
from cluster_serving.client.protocol import GROUP, Entry, answered_key, dead_letters_key, result_key

MAX_DEAD_LETTERS = 1000
"""The oldest dead letters make room for new ones."""


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


def write_answers(
    client: redis.Redis, job: str, ttl_s: int, answers: Sequence[Answer], letters: Sequence[DeadLetter] = ()
) -> None:
    """Write answers, and all that makes their requests answered, in one MULTI.

    Result, expiry, acknowledgement, deletion from the stream and the wake-up of the waiting client happen together: a
    request is either still pending or answered, whatever crashes. Writing an answer again does no harm.

    Args:
        client: Connection to the job's Redis.
        job: `jobName`: stream and prefix of the result keys.
        ttl_s: Seconds that the results are kept.
        answers: At least one.
        letters: Those of the requests that are given up.

    Raises:
        redis.RedisError: Not all were written; write them again.
    """
    writes = [_Write.of(job, answer) for answer in answers]
    try:
        with client.pipeline(transaction=True) as pipeline:
            for write in writes:
                # A hash left by an earlier request of the same uri may hold fields that this one does not.
                pipeline.delete(write.key)
                pipeline.hset(write.key, mapping=write.fields)  # type: ignore[arg-type]
                pipeline.expire(write.key, ttl_s)
                pipeline.publish(write.channel, write.uri)
            ids = [write.entry_id for write in writes]
            pipeline.xack(job, GROUP, *ids)
            pipeline.xdel(job, *ids)
            pipeline.incrby(answered_key(job), len(ids))
            for letter in letters:
                pipeline.xadd(dead_letters_key(job), letter.fields(), maxlen=MAX_DEAD_LETTERS)  # type: ignore[arg-type]
            pipeline.execute()
    except OutOfMemoryError:
        # A full Redis refuses a MULTI as a whole, but a script that has deleted something may go on: only answering
        # makes room again.
        letter_of = {letter.request.id: _flat(letter.fields()) for letter in letters}
        for write in writes:
            fields, letter_fields = _flat(write.fields), letter_of.get(write.entry_id, [])
            arguments = [GROUP, write.entry_id, ttl_s, write.channel, write.uri, MAX_DEAD_LETTERS, len(fields)]
            keys = [job, write.key, dead_letters_key(job), answered_key(job)]
            client.eval(_ANSWER_WHEN_FULL, len(keys), *keys, *arguments, *fields, *letter_fields)  # type: ignore[arg-type]


_ANSWER_WHEN_FULL = """
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
redis.call('XDEL', KEYS[1], ARGV[2])
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], unpack(ARGV, 8, 7 + ARGV[7]))
redis.call('EXPIRE', KEYS[2], ARGV[3])
redis.call('PUBLISH', ARGV[4], ARGV[5])
redis.call('INCR', KEYS[4])
if #ARGV > 7 + ARGV[7] then
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[6], '*', unpack(ARGV, 8 + ARGV[7]))
end
"""


def _flat(fields: Mapping[str, str | bytes | int | float]) -> list[str | bytes | int | float]:
    return [part for pair in fields.items() for part in pair]


class _Write(NamedTuple):
    """An answer as Redis gets it."""

    entry_id: bytes
    uri: bytes
    key: bytes
    channel: bytes
    fields: Mapping[str, str | bytes]

    @classmethod
    def of(cls, job: str, answer: Answer) -> _Write:
        entry = answer.entry
        uri = entry.uri.encode("utf8", "surrogateescape")
        key, fields = result_key(job, "").encode() + uri, answer.fields
        if image_stream.sent(job, entry):
            key, fields = image_stream.result_key("").encode() + uri, image_stream.result_fields(fields)
        return cls(entry.id, uri, key, entry.reply_to.encode("utf8", "surrogateescape") or key, fields)
