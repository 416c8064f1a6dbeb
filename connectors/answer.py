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
from cluster_serving.protocol.scripts import Call, Script, call, flat

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


# Not a MULTI: that could not leave alone what is answered already, costs the caller four times as much to write, and is
# refused as a whole by a full Redis, while a script that has deleted something may go on. Only answering makes room.
_ANSWER = Script(
    """
local written = 0
local done, lines, arrays = {}, {}, {}
local at = 4
local function list_of(lists, name)
  if not lists[name] then lists[name] = {} end
  return lists[name]
end
-- Numbers take long to become text, and most answers are alike.
local function headers(mark)
  return setmetatable({}, {__index = function(known, size)
    known[size] = mark .. size .. '\\r\\n'
    return known[size]
  end})
end
local array, bulk = headers('*'), headers('$')
for i = 3, #KEYS, 2 do
  local stream, key = KEYS[i], KEYS[i + 1]
  local id, channel, uri, told, fields, letter = unpack(ARGV, at, at + 5)
  fields, letter, at = tonumber(fields), tonumber(letter), at + 6
  if redis.call('XACK', stream, ARGV[1], id) == 1 then
    table.insert(list_of(done, stream), id)
    -- A hash left by an earlier request of the same uri may hold fields that this one does not.
    redis.call('DEL', key)
    redis.call('HSET', key, unpack(ARGV, at, at + fields - 1))
    redis.call('EXPIRE', key, ARGV[2])
    if letter > 0 then
      redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], '*', unpack(ARGV, at + fields, at + fields + letter - 1))
    end
    if told == 'line' then
      table.insert(list_of(lines, channel), uri)
    else
      local list, last = list_of(arrays, channel), told == 'uri' and at - 1 or at + fields - 1
      local n = #list
      list[n + 1], list[n + 2], list[n + 3], list[n + 4] = array[last - at + 2], bulk[#uri], uri, '\\r\\n'
      for j = at, last do
        n = n + 3
        list[n + 2], list[n + 3], list[n + 4] = bulk[#ARGV[j]], ARGV[j], '\\r\\n'
      end
    end
    written = written + 1
  end
  at = at + fields + letter
end
-- One command for many entries costs a fraction of many commands; unpack takes some thousand values.
for stream, ids in pairs(done) do
  for i = 1, #ids, 1000 do redis.call('XDEL', stream, unpack(ids, i, math.min(i + 999, #ids))) end
end
if written > 0 then redis.call('INCRBY', KEYS[2], written) end
for channel, uris in pairs(lines) do redis.call('PUBLISH', channel, table.concat(uris, '\\n')) end
for channel, answers in pairs(arrays) do redis.call('PUBLISH', channel, table.concat(answers)) end
return written
"""
)


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
    arguments: list[str | bytes | int | float] = [GROUP, ttl_s, MAX_DEAD_LETTERS]
    letter_of = {
        (stream_of(job, letter.request.priority), letter.request.id): flat(letter.fields()) for letter in letters
    }
    for write in writes:
        fields, letter = flat(write.fields), letter_of.get((write.stream, write.entry_id), [])
        keys += [write.stream, write.key]
        arguments += [write.entry_id, write.channel, write.uri, write.told, len(fields), len(letter), *fields, *letter]
    written = int(call(client, Call(_ANSWER, keys, arguments)))
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
