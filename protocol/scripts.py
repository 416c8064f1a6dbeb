"""Lua scripts that Redis runs, and the functions that send them.

A procedure is a generator that yields calls of scripts and gets their replies, so that the synchronous and the asyncio
client share its logic.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, Union, cast

import redis
import redis.asyncio
from redis.exceptions import NoScriptError, RedisError

from cluster_serving.protocol.dedicated import Commands
from cluster_serving.protocol.keys import PAYLOAD_FOLDER

T = TypeVar("T")
Argument = Union[str, bytes, int, float]


# Redis undoes nothing of a script that it stops in the middle, as it does when the user may not use a command, when a
# command has another name there, or when a key has another type. So each script writes what must not be alone last, or
# proves before that the next commands are allowed: `EXPIRE key 0` deletes as `DEL` does. At its memory limit Redis
# refuses only the first write of a script, and only if that may need memory.


@dataclass(frozen=True)
class Script:
    """A Lua script. Redis gets its SHA-1, and the text only if that SHA-1 is unknown there, as after a restart."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())


# Counts and adds in one step, so that no other client adds in between. Deletes the result of an earlier request of that
# uri last: after its first write a script may fill a Redis that has reached its memory limit.
# KEYS: limits, the three streams, results to delete (optional). ARGV per request: index of its stream in KEYS, number
# of fields and values, fields and values. Reply per request: its entry id, or the queue's length and limit.
ADD = Script("""
local limit = tonumber(redis.call('HGET', KEYS[1], 'maxQueueLength') or nil)
local length = 0
if limit then length = redis.call('XLEN', KEYS[2]) + redis.call('XLEN', KEYS[3]) + redis.call('XLEN', KEYS[4]) end
local replies, at = {}, 1
while at < #ARGV do
  local reply
  local last = at + 1 + tonumber(ARGV[at + 1])
  if limit and length >= limit then
    reply = {length, limit}
  else
    reply = redis.pcall('XADD', KEYS[tonumber(ARGV[at])], '*', unpack(ARGV, at + 2, last))
    if type(reply) == 'string' then length = length + 1 end
  end
  replies[#replies + 1] = reply
  at = last + 1
end
if KEYS[5] and type(replies[1]) == 'string' then
  local deleted = redis.pcall('DEL', unpack(KEYS, 5))
  if type(deleted) == 'table' then
    redis.call('XDEL', KEYS[tonumber(ARGV[1])], replies[1])
    return deleted
  end
end
return replies
""")

# KEYS: limits, the three streams. Reply: length of the queue, and the limit.
QUEUE_LENGTH = Script("""
local length = redis.call('XLEN', KEYS[2]) + redis.call('XLEN', KEYS[3]) + redis.call('XLEN', KEYS[4])
return {length, tonumber(redis.call('HGET', KEYS[1], 'maxQueueLength') or length + 1)}
""")

# A lock without expiry, which a version before may have left, is free. KEYS: lock. ARGV: token, seconds until the lock
# expires (0 releases it), text about the holder. Reply: nil if the lock is that of the token, else the text about its
# holder.
HOLD = Script("""
local token = redis.call('HGET', KEYS[1], 'token')
if token and token ~= ARGV[1] and redis.pcall('TTL', KEYS[1]) ~= -1 then
  return redis.call('HGET', KEYS[1], 'holder')
end
redis.call('EXPIRE', KEYS[1], 0)
if tonumber(ARGV[2]) > 0 then
  redis.call('HSET', KEYS[1], 'token', ARGV[1], 'holder', ARGV[3])
  redis.call('EXPIRE', KEYS[1], ARGV[2])
end
""")

# Start of a script. The answer, or an error in its place, follows the last piece of the last attempt.
_AFTER_PIECES = """
local function id_after_pieces(key)
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  local attempt, number = string.match(last and last[1] or '1-0', '(%d+)-(%d+)')
  return attempt .. '-' .. (number + 1)
end
"""

# An entry is being computed if it is pending in the group. Without a group, no job has ever read the stream. Only an
# answer in pieces can be stopped then: the slot finds the request gone when it writes the next piece.
# KEYS: stream, limits, result in our encoding, result in the original's, pieces, result of 0.7 and 0.8 (optional).
# ARGV: group, entry id, uri, seconds to keep the result, its fields and values (optional). Reply: 0 if the request is
# not waiting, else 1, or payload folder and file.
WITHDRAW = Script(
    _AFTER_PIECES
    + """
local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1)
local is_pending = not pending.err and #pending > 0
local entries = redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2])
if #entries == 0 then return 0 end
local entry = {}
for i = 1, #entries[1][2], 2 do entry[entries[1][2][i]] = entries[1][2][i + 1] end
local in_pieces = entry.reply_with == 'pieces'
if entry.uri ~= ARGV[3] or (is_pending and not in_pieces) then return 0 end
redis.call('XDEL', KEYS[1], '0-0')
local ttl, channel = redis.call('HGET', KEYS[2], 'resultTtl') or ARGV[4], entry.reply_to
if #ARGV > 4 and in_pieces then
  redis.call('EXPIRE', KEYS[5], ttl)
  redis.call('XADD', KEYS[5], id_after_pieces(KEYS[5]), 'end', '', unpack(ARGV, 5))
  redis.call('EXPIRE', KEYS[5], ttl)
  channel = KEYS[5]
elseif #ARGV > 4 then
  -- Each client looks for its result elsewhere.
  local key = entry.serde == 'arrow' and KEYS[3] or entry.image and not entry.data and KEYS[6] or KEYS[4]
  redis.call('EXPIRE', key, 0)
  redis.call('HSET', key, unpack(ARGV, 5))
  redis.call('EXPIRE', key, ttl)
  if not channel or channel == '' then channel = KEYS[4] end
end
if is_pending then redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) end
redis.call('XDEL', KEYS[1], ARGV[2])
-- A client that is not told looks by itself.
if #ARGV > 4 then redis.pcall('PUBLISH', channel, ARGV[3]) end
if entry.data_file then return {redis.call('HGET', KEYS[2], 'payloadFolder') or '', entry.data_file} end
return 1
"""
)

# A pipeline of commands would cost the caller more: redis-py reads each reply by a coroutine with a timeout of its own.
# If Redis refuses a command about one result, as deleting on a full disk, the others still arrive.
# KEYS: results to delete, results to read. ARGV: number of the former. Reply: fields and values of each result read.
FETCH = Script("""
local delete, results = tonumber(ARGV[1]), {}
for i = 1, delete do redis.pcall('UNLINK', KEYS[i]) end
for i = delete + 1, #KEYS do results[i - delete] = redis.pcall('HGETALL', KEYS[i]) end
return results
""")

# A page ends after about 1 MiB or 1000 entries, so that Redis can serve other clients in between.
# KEYS: stream. ARGV: newest entry of the page, field, its value (optional). Reply: see `page_call`.
PAGE = Script("""
local last, seen, bytes, matches = ARGV[1], 0, 0, {}
while seen < 1000 and bytes < 1048576 do
  local entries = redis.call('XREVRANGE', KEYS[1], last, '-', 'COUNT', 16)
  if #entries == 0 then return {'', matches} end
  for _, entry in ipairs(entries) do
    for i = 1, #entry[2], 2 do
      local value = entry[2][i + 1]
      bytes = bytes + #value
      if entry[2][i] == ARGV[2] and (not ARGV[3] or value == ARGV[3]) then matches[#matches + 1] = {entry[1], value} end
    end
  end
  seen = seen + #entries
  last = '(' .. entries[#entries][1]
end
return {last, matches}
""")

# At its memory limit Redis refuses commands that may need memory, except to a script that has written before. Only the
# job can make room again, so the job has to start and to go on.
# KEYS: hash. ARGV: "all" to replace the hash or "some" to set fields, fields and values.
PUT_FIELDS = Script("""
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
if ARGV[1] == 'all' then redis.call('DEL', KEYS[1]) end
for at = 2, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1]) end
""")

# Writes the heartbeat of an attempt at a slot, and its report if one is given. Works in a full Redis, as `PUT_FIELDS`
# does. KEYS: reports of the generation that serves, reports of this generation, generations. ARGV: generation, index,
# attempt, "beat", "put" for the report too, or "take" to replace another attempt; perhaps the report. Reply: 1; 0 if
# another attempt has the slot, or the generation has ended; -1 if no report is there and none is given.
REPORT = Script("""
local record = redis.call('HGET', KEYS[3], ARGV[1])
if not record and redis.call('HEXISTS', KEYS[3], 'last') == 1 then return 0 end
local key = (not record or cjson.decode(record).role == 'serving') and KEYS[1] or KEYS[2]
local stored = redis.call('HGET', key, ARGV[2])
if stored and ARGV[4] ~= 'take' and not string.find(stored, ARGV[3], 1, true) then return 0 end
if not stored and ARGV[4] == 'beat' then return -1 end
local time = redis.call('TIME')
redis.call('HDEL', key, ARGV[2] .. ':beat')
if ARGV[5] then redis.call('HSET', key, ARGV[2], ARGV[5]) end
redis.call('HSET', key, ARGV[2] .. ':beat', ARGV[3] .. ' ' .. time[1])
return 1
""")

# Gives the place of the generation that serves to another one, along with the reports of its slots. KEYS: generations,
# reports of the slots that serve, those of the next generation, those of the one before. ARGV: number and record of the
# next generation, and of the one before (optional). Works in a full Redis, as `PUT_FIELDS` does.
SWITCH = Script("""
if #ARGV > 2 and redis.call('EXISTS', KEYS[2]) == 1 then redis.call('RENAME', KEYS[2], KEYS[4]) end
if redis.call('EXISTS', KEYS[3]) == 1 then redis.call('RENAME', KEYS[3], KEYS[2]) end
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], unpack(ARGV))
""")

# Leaves pending entries to other slots: a consumer that reads nothing gets them. KEYS: generations, streams. ARGV:
# group, that consumer, then per entry index of its stream in KEYS, and id.
LEAVE = Script("""
redis.call('HDEL', KEYS[1], '')
redis.call('HINCRBY', KEYS[1], 'left', 1)
for i = 3, #ARGV, 2 do
  redis.call('XCLAIM', KEYS[tonumber(ARGV[i])], ARGV[1], ARGV[2], 0, ARGV[i + 1], 'JUSTID')
end
""")

# Takes what `LEAVE` or `RELEASE` has left. KEYS: streams. ARGV: group, consumer that takes, consumer that was left with
# entries, most entries, milliseconds that they have been there at least, "new" for entries whose computation has not
# begun. Reply per stream: the entries if they are new, else their ids.
TAKE = Script("""
local taken, most = {}, tonumber(ARGV[4])
for i, stream in ipairs(KEYS) do
  taken[i] = {}
  local found = most > 0 and redis.call('XPENDING', stream, ARGV[1], 'IDLE', ARGV[5], '-', '+', most, ARGV[3]) or {}
  if #found > 0 then
    local claim = {stream, ARGV[1], ARGV[2], 0}
    for _, entry in ipairs(found) do claim[#claim + 1] = entry[1] end
    if ARGV[6] == 'new' then
      claim[#claim + 1] = 'RETRYCOUNT'
      claim[#claim + 1] = 1
    else
      claim[#claim + 1] = 'JUSTID'
    end
    taken[i] = redis.call('XCLAIM', unpack(claim))
    most = most - #found
  end
end
return taken
""")

# Leaves all pending entries of consumers to one that reads nothing, and removes these consumers. KEYS: generations,
# streams. ARGV: group, the consumer that gets them, the consumers. Reply: number of the entries. Works in a full Redis,
# as `PUT_FIELDS` does, though it deletes nothing.
RELEASE = Script("""
redis.call('HDEL', KEYS[1], '')
local released = 0
for i = 2, #KEYS do
  for j = 3, #ARGV do
    local found = redis.call('XPENDING', KEYS[i], ARGV[1], '-', '+', 1000, ARGV[j])
    while #found > 0 do
      local claim = {KEYS[i], ARGV[1], ARGV[2], 0}
      for _, entry in ipairs(found) do claim[#claim + 1] = entry[1] end
      claim[#claim + 1] = 'JUSTID'
      redis.call('XCLAIM', unpack(claim))
      released = released + #found
      local before = #found
      found = redis.call('XPENDING', KEYS[i], ARGV[1], '-', '+', 1000, ARGV[j])
      -- Entries that are not in the stream any more stay pending in old versions of Redis.
      if before < 1000 then break end
    end
    if #found == 0 then redis.call('XGROUP', 'DELCONSUMER', KEYS[i], ARGV[1], ARGV[j]) end
  end
end
if released > 0 then redis.call('HINCRBY', KEYS[1], 'left', 1) end
return released
""")

# Writes what a controller says about itself, unless a later one has taken over. Works in a full Redis, as `PUT_FIELDS`
# does. KEYS: controller. ARGV: time of its start, seconds until the hash expires, fields and values. Reply: 1; 0 if a
# later controller is there.
PUT_CONTROLLER = Script("""
local since = redis.call('HGET', KEYS[1], 'since')
if since and tonumber(since) > tonumber(ARGV[1]) then return 0 end
redis.call('EXPIRE', KEYS[1], 0)
redis.call('HSET', KEYS[1], 'since', ARGV[1], unpack(ARGV, 3))
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1
""")

# A command would also bring the payload of the oldest entry. KEYS: streams. ARGV: group. Reply: number of entries, and
# milliseconds that the oldest one that no consumer has read has waited.
BACKLOG = Script("""
local length, oldest = 0, nil
for _, stream in ipairs(KEYS) do
  length = length + redis.call('XLEN', stream)
  local groups, last = redis.pcall('XINFO', 'GROUPS', stream), '0-0'
  for _, group in ipairs(groups.err and {} or groups) do
    local fields = {}
    for i = 1, #group, 2 do fields[group[i]] = group[i + 1] end
    if fields.name == ARGV[1] then last = fields['last-delivered-id'] end
  end
  local entry = redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', 1)[1]
  local added = entry and tonumber(string.match(entry[1], '^%d+'))
  if added and (not oldest or added < oldest) then oldest = added end
end
if not oldest then return {length, 0} end
local time = redis.call('TIME')
return {length, math.max(0, time[1] * 1000 + math.floor(time[2] / 1000) - oldest)}
""")

# Works in a full Redis, as `PUT_FIELDS` does. KEYS: set. ARGV: member.
PUT_MEMBER = Script("redis.call('SREM', KEYS[1], '') redis.call('SADD', KEYS[1], ARGV[1])")

# Not a MULTI, which cannot skip answered requests and costs the caller four times as much to write. A full Redis also
# refuses a MULTI as a whole, while a script may go on once it has deleted something; and only answering makes room.
# KEYS: dead letters, counter, then per answer stream and result. ARGV: group, seconds to keep results, most dead
# letters, then per answer entry id, channel, uri, kind of announcement (line, result or uri; or pieces, of which the
# answer is the last one), number of fields and values of the result, number of those of the dead letter, number of
# records, and both lists. Reply: number of requests that were pending; or the error of a result that was refused: its
# request is pending again.
ANSWER = Script(
    _AFTER_PIECES
    + """
local written, records = 0, 0
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
local function refused(...)
  local reply = redis.pcall(...)
  return type(reply) == 'table' and reply.err and reply
end
local failure
for i = 3, #KEYS, 2 do
  local stream, key = KEYS[i], KEYS[i + 1]
  local id, channel, uri, kind, fields, letter, count = unpack(ARGV, at, at + 6)
  fields, letter, at = tonumber(fields), tonumber(letter), at + 7
  local last_id = kind == 'pieces' and id_after_pieces(key)
  if redis.call('XACK', stream, ARGV[1], id) == 1 then
    if last_id then
      failure = refused('XADD', key, last_id, unpack(ARGV, at, at + fields - 1))
    else
      -- A hash left by an earlier request of the same uri may hold fields that this one does not.
      failure = refused('EXPIRE', key, 0) or refused('HSET', key, unpack(ARGV, at, at + fields - 1))
    end
    failure = failure or refused('EXPIRE', key, ARGV[2])
    if failure then
      redis.call('XCLAIM', stream, ARGV[1], 'refused', 0, id, 'FORCE', 'JUSTID')
      break
    end
    table.insert(list_of(done, stream), id)
    if letter > 0 then
      redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], '*', unpack(ARGV, at + fields, at + fields + letter - 1))
    end
    if kind == 'line' or kind == 'pieces' then
      table.insert(list_of(lines, channel), uri)
    else
      local list, last = list_of(arrays, channel), kind == 'uri' and at - 1 or at + fields - 1
      local n = #list
      list[n + 1], list[n + 2], list[n + 3], list[n + 4] = array[last - at + 2], bulk[#uri], uri, '\\r\\n'
      for j = at, last do
        n = n + 3
        list[n + 2], list[n + 3], list[n + 4] = bulk[#ARGV[j]], ARGV[j], '\\r\\n'
      end
    end
    written, records = written + 1, records + count
  end
  at = at + fields + letter
end
-- One command for many entries costs a fraction of many commands; unpack takes some thousand values.
for stream, ids in pairs(done) do
  for i = 1, #ids, 1000 do redis.call('XDEL', stream, unpack(ids, i, math.min(i + 999, #ids))) end
end
-- A client that is not told looks by itself.
if written > 0 then redis.pcall('INCRBY', KEYS[2], records) end
for channel, uris in pairs(lines) do redis.pcall('PUBLISH', channel, table.concat(uris, '\\n')) end
for channel, answers in pairs(arrays) do redis.pcall('PUBLISH', channel, table.concat(answers)) end
return failure or written
"""
)

# Appends pieces of answers. The ids of a stream of pieces grow, so a slot that has lost the request to another attempt
# cannot add to it. Works in a full Redis, as `PUT_FIELDS` does: only answers make room. KEYS: per piece its stream, and
# that of the request. ARGV: group, seconds to keep the pieces, then per piece entry id and uri of the request, attempt
# (0 begins one), number of the piece in its attempt, number of fields and values, and these. Reply per piece: its
# attempt; 0 if nobody waits for it any more.
ADD_PIECES = Script("""
local attempts, at = {}, 3
for i = 1, #KEYS, 2 do
  local key, stream = KEYS[i], KEYS[i + 1]
  local id, uri, attempt, number, fields = unpack(ARGV, at, at + 4)
  attempt, fields, at = tonumber(attempt), tonumber(fields), at + 5
  local pending = redis.pcall('XPENDING', stream, ARGV[1], id, id, 1)
  if pending.err or #pending == 0 then
    attempt = 0
  else
    redis.call('EXPIRE', key, ARGV[2])
    if attempt == 0 then
      local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
      attempt = last and string.match(last[1], '%d+') + 1 or 1
      if last then redis.call('XADD', key, attempt .. '-0', 'restarted', '') end
    end
    local added = redis.pcall('XADD', key, attempt .. '-' .. number, unpack(ARGV, at, at + fields - 1))
    if type(added) == 'table' and added.err then
      -- The reply to this piece was lost, or another attempt has begun.
      local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
      if last[1] ~= attempt .. '-' .. number then attempt = 0 end
    else
      redis.call('EXPIRE', key, ARGV[2])
      redis.pcall('PUBLISH', key, uri)
    end
  end
  attempts[#attempts + 1] = attempt
  at = at + fields
end
return attempts
""")

# A page ends after about 1 MiB, so that Redis can serve other clients in between. KEYS: stream of pieces. ARGV: id of
# the last piece that the client has. Reply: id, and fields and values, of the next ones.
READ_PIECES = Script("""
local pieces, bytes, last = {}, 0, ARGV[1]
while bytes < 1048576 do
  local found = redis.call('XRANGE', KEYS[1], '(' .. last, '+', 'COUNT', 16)
  if #found == 0 then break end
  for _, piece in ipairs(found) do
    pieces[#pieces + 1] = piece
    for i = 2, #piece[2], 2 do bytes = bytes + #piece[2][i] end
  end
  last = found[#found][1]
end
return pieces
""")

# Without its stream, a shadow has ended. A full Redis refuses the copies, and the next run counts them as skipped.
# KEYS: stream of the copies, counters, then per copy the hash for the answer of the request. ARGV: most copies that
# wait, most bytes of them, seconds to keep the hashes, copies skipped before, then per copy name, uri, serde and data.
COPY = Script("""
if redis.call('EXISTS', KEYS[1]) == 0 then return end
local waiting, skipped = redis.call('XLEN', KEYS[1]), tonumber(ARGV[4])
for i = 3, #KEYS do
  local name, uri, serde, data = unpack(ARGV, 4 * i - 7, 4 * i - 4)
  if waiting < tonumber(ARGV[1]) and (waiting + 1) * #data <= tonumber(ARGV[2]) then
    -- The field is missing in the original's encoding.
    local encoding = serde ~= '' and {'serde', serde} or {}
    redis.call('HSET', KEYS[i], 'uri', uri)
    redis.call('EXPIRE', KEYS[i], ARGV[3])
    redis.call('XADD', KEYS[1], '*', 'uri', name, 'data', data, 'deadline', '0', unpack(encoding))
    waiting = waiting + 1
  else
    skipped = skipped + 1
  end
end
if skipped > 0 then redis.call('HINCRBY', KEYS[2], 'skipped', skipped) end
""")

# KEYS: stream of the copies, then per answer the hash that awaits it. ARGV: most bytes of the answers that wait,
# seconds to keep them, then per answer its bytes, the number of its fields and values, and these. Reply: numbers of the
# answers, from 1, whose copy is not there.
KEEP = Script("""
local waiting, at, missing = redis.call('XLEN', KEYS[1]), 3, {}
for i = 2, #KEYS do
  local bytes, fields = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  if (waiting + 1) * bytes > tonumber(ARGV[1]) then
    redis.call('DEL', KEYS[i])
  elseif redis.call('EXISTS', KEYS[i]) == 1 then
    redis.call('HSET', KEYS[i], unpack(ARGV, at + 2, at + 1 + fields))
    redis.call('EXPIRE', KEYS[i], ARGV[2])
  else
    missing[#missing + 1] = i - 1
  end
  at = at + 2 + fields
end
return missing
""")

# KEYS: stream of the copies, counters, then hashes to delete. ARGV: largest difference, most examples, number of
# examples, these, then counters and increments.
TALLY = Script("""
for i = 3, #KEYS do redis.call('UNLINK', KEYS[i]) end
if redis.call('EXISTS', KEYS[1]) == 0 then return end
local largest = redis.call('HGET', KEYS[2], 'largest')
if tonumber(ARGV[1]) > tonumber(largest or '0') then redis.call('HSET', KEYS[2], 'largest', ARGV[1]) end
local at = 4 + tonumber(ARGV[3])
for i = 4, at - 1 do
  local number = redis.call('HINCRBY', KEYS[2], 'examples', 1)
  if number <= tonumber(ARGV[2]) then redis.call('HSET', KEYS[2], 'example:' .. number, ARGV[i]) end
end
for i = at, #ARGV, 2 do redis.call('HINCRBY', KEYS[2], ARGV[i], ARGV[i + 1]) end
""")

# KEYS: dead letters, stream, result, pieces. ARGV: letter id, fields and values of the request. Reply: entry id; nil if
# the letter is gone.
REQUEUE = Script("""
if redis.call('XDEL', KEYS[1], '0-0') == 0 and #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1]) == 0 then
  return false
end
redis.call('DEL', KEYS[3], KEYS[4])
local id = redis.call('XADD', KEYS[2], '*', unpack(ARGV, 2))
redis.call('XDEL', KEYS[1], ARGV[1])
return id
""")

# KEYS: stream. ARGV: entry id.
HAS_ENTRY = Script("return #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])")

# KEYS: limits.
FIND_PAYLOAD_FOLDER = Script(f"return redis.call('HGET', KEYS[1], '{PAYLOAD_FOLDER}')")


class Call(NamedTuple):
    """One run of a script."""

    script: Script
    keys: Sequence[str | bytes]
    arguments: Sequence[Argument] = ()

    def command(self, by_text: bool = False) -> list[Any]:
        """Return the command and its arguments, as `execute_command` takes them."""
        name, script = ("EVAL", self.script.text) if by_text else ("EVALSHA", self.script.sha)
        return [name, script, len(self.keys), *self.keys, *self.arguments]


class Pause(NamedTuple):
    """A pause of a procedure."""

    seconds: float


Procedure = Generator[Union[Call, Pause], Any, T]
"""Yields calls and pauses, gets the reply to a call, and returns its result.

`run` throws errors of Redis into the procedure, and also whatever ends a pause early: a cancellation, or Ctrl-C.
"""


def flat(fields: Mapping[str, Argument]) -> list[Argument]:
    """Return names and values in turn, as commands take them."""
    return [part for pair in fields.items() for part in pair]


def fields_of(reply: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the fields of a hash that a script has read: names and values in turn, none of a missing hash."""
    return dict(zip(reply[::2], reply[1::2]))


def fetch_call(keys: Sequence[str | bytes], delete: Sequence[str | bytes] = ()) -> Call:
    """Return the call that reads result hashes, and deletes others.

    Its reply has the fields of each hash that is read (see `fields_of`), or an error in their place.
    """
    return Call(FETCH, [*delete, *keys], [len(delete)])


NEWEST = b"+"
"""Start of the first page of a stream."""


def page_call(stream: str, last: bytes, field: str, value: bytes | None = None) -> Call:
    """Return the call that searches a page of a stream for entries with a field, newest entries first.

    Its reply is the start of the next page (empty after the last page), and id and value of each matching entry.
    `last` is `NEWEST`, or the start of this page from the reply for the page before. With `value` None any value
    matches.
    """
    return Call(PAGE, [stream], [last, field, *([] if value is None else [value])])


def call(client: Commands, call: Call) -> Any:
    """Run a script and return its reply."""
    try:
        return client.execute_command(*call.command())
    except NoScriptError:
        return client.execute_command(*call.command(by_text=True))


async def call_async(client: redis.asyncio.Redis, call: Call) -> Any:
    """Run a script and return its reply: the asyncio variant of `call`."""
    try:
        return await client.execute_command(*call.command())  # type: ignore[no-untyped-call]
    except NoScriptError:
        return await client.execute_command(*call.command(by_text=True))  # type: ignore[no-untyped-call]


def run(client: Commands, procedure: Procedure[T]) -> T:
    """Run a procedure and return its result."""
    reply, error = None, None
    while True:
        try:
            step = procedure.throw(error) if error else procedure.send(reply)
        except StopIteration as end:
            return cast("T", end.value)
        reply, error = None, None
        try:
            if isinstance(step, Pause):
                time.sleep(step.seconds)
            else:
                reply = call(client, step)
        except BaseException as raised:
            error = _thrown(step, raised)


async def run_async(client: redis.asyncio.Redis, procedure: Procedure[T]) -> T:
    """Run a procedure and return its result: the asyncio variant of `run`."""
    reply, error = None, None
    while True:
        try:
            step = procedure.throw(error) if error else procedure.send(reply)
        except StopIteration as end:
            return cast("T", end.value)
        reply, error = None, None
        try:
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
            else:
                reply = await call_async(client, step)
        except BaseException as raised:
            error = _thrown(step, raised)


def _thrown(step: Call | Pause, error: BaseException) -> BaseException:
    """Return an error that a procedure handles: one of Redis, or the end of a pause. Raise any other."""
    if isinstance(error, RedisError) or isinstance(step, Pause):
        return error
    # The effect of an interrupted call is unknown.
    raise error


async def call_all(client: redis.asyncio.Redis, calls: Sequence[Call]) -> list[Any]:
    """Make independent calls in one round trip. An error of one call is in the place of its reply."""

    async def send(calls: Sequence[Call], by_text: bool) -> list[Any]:
        async with client.pipeline(transaction=False) as pipeline:
            for call in calls:
                pipeline.execute_command(*call.command(by_text))
            return await pipeline.execute(raise_on_error=False)

    return await with_texts(send, calls)


async def with_texts(send: Callable[[Sequence[Call], bool], Awaitable[list[Any]]], calls: Sequence[Call]) -> list[Any]:
    """Make independent calls, and repeat with their texts those whose scripts Redis does not know.

    `send` makes calls, by text or not, and returns replies with errors in their places.
    """
    replies = await send(calls, False)
    unknown = [index for index, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
    if unknown:
        for index, reply in zip(unknown, await send([calls[index] for index in unknown], True)):
            replies[index] = reply
    return replies
