"""What a request is answered with, and how that is written to Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import redis

from cluster_serving.protocol.dead_letters import DeadLetter
from cluster_serving.protocol.entry import RESULT, Entry
from cluster_serving.protocol.keys import GROUP, answered_key, dead_letters_key, result_key, stream_of
from cluster_serving.protocol.original import image_stream
from cluster_serving.protocol.payload_files import remove
from cluster_serving.protocol.scripts import ANSWER, Argument, Call, call, flat

MAX_DEAD_LETTERS = 1000
"""The oldest dead letters make room for new ones."""

MAX_PUBLISHED_BYTES = 8192
"""Longer results are not published: Redis would hold them for every subscriber that is slow to read."""


class Answer(NamedTuple):
    """What a request is answered with.

    Attributes:
        entry: The request.
        lane_id: The lane it came on.
        fields: Fields of the result hash.
    """

    entry: Entry
    lane_id: str
    fields: Mapping[str, str | bytes]


class Answered(NamedTuple):
    """A batch on its way to the sink.

    Attributes:
        answers: At least one.
        wait_us: Microseconds that its oldest request had waited before it was computed.
        inference_us: Microseconds that it took to compute.
    """

    answers: Sequence[Answer]
    wait_us: int
    inference_us: int


def write_answers(
    client: redis.Redis, job: str, ttl_s: int, answers: Sequence[Answer], letters: Sequence[DeadLetter] = ()
) -> int:
    """Write answers, and all that makes their requests answered, in one step.

    Result, expiry, acknowledgement, deletion from the stream and the wake-up of the waiting client happen together: a
    request is either still pending or answered, whatever crashes. A request that is not pending any more is left alone:
    it has been answered by another slot, and its client may have deleted the result.

    Args:
        client: Connection to the job's Redis.
        job: `jobName`: stream and prefix of the result keys.
        ttl_s: Seconds that the results are kept.
        answers: At least one.
        letters: Those of the requests that are given up.

    Returns:
        Number of requests that were still pending.

    Raises:
        redis.RedisError: Not all were written; write them again.
    """
    writes = [_Write.of(job, answer) for answer in answers]
    keys: list[str | bytes] = [dead_letters_key(job), answered_key(job)]
    arguments: list[Argument] = [GROUP, ttl_s, MAX_DEAD_LETTERS]
    letter_of = {
        (stream_of(job, letter.request.priority), letter.request.id): flat(letter.fields()) for letter in letters
    }
    for write in writes:
        fields, letter = flat(write.fields), letter_of.get((write.stream, write.entry_id), [])
        keys += [write.stream, write.key]
        arguments += [write.entry_id, write.channel, write.uri, write.told, len(fields), len(letter), *fields, *letter]
    written = int(call(client, Call(ANSWER, keys, arguments)))
    # What was not pending may still have to be computed, if its group was lost; then it is in the stream.
    for write, answer in zip(writes, answers, strict=True):
        if answer.entry.path and (written == len(answers) or not _is_there(client, write)):
            remove(answer.entry.path)
    return written


def _is_there(client: redis.Redis, write: _Write) -> bool:
    return bool(client.xrange(write.stream, write.entry_id.decode(), write.entry_id.decode()))


class _Write(NamedTuple):
    """An answer as Redis gets it."""

    stream: str
    entry_id: bytes
    uri: bytes
    key: bytes
    channel: bytes
    told: str
    fields: Mapping[str, str | bytes]

    @classmethod
    def of(cls, job: str, answer: Answer) -> _Write:
        entry = answer.entry
        uri = entry.uri.encode("utf8", "surrogateescape")
        key, fields = result_key(job, "").encode() + uri, answer.fields
        if image_stream.sent(job, entry):
            key, fields = image_stream.result_key("").encode() + uri, image_stream.result_fields(fields)
        channel = entry.reply_to.encode("utf8", "surrogateescape") or key
        told = "line"
        if entry.reply_with == RESULT:
            told = "result" if sum(map(len, fields.values())) <= MAX_PUBLISHED_BYTES else "uri"
        return cls(stream_of(job, entry.priority), entry.id, uri, key, channel, told, fields)
