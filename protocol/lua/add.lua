-- Counts and adds in one step, so that no other client adds in between. Deletes the result of an earlier request of that
-- uri last: after its first write a script may fill a Redis that has reached its memory limit.
-- KEYS: limits, the three streams, results to delete (optional). ARGV per request: index of its stream in KEYS, number
-- of fields and values, fields and values. Reply per request: its entry id, or the queue's length and limit, or alone
-- the reason why nothing will answer.

local limit = tonumber(redis.call('HGET', KEYS[1], 'maxQueueLength') or nil)
local removed = redis.call('HGET', KEYS[1], 'removed')
-- Also without a limit: no slot can read while one of the keys is another program's, and XLEN refuses that.
local length = redis.call('XLEN', KEYS[2]) + redis.call('XLEN', KEYS[3]) + redis.call('XLEN', KEYS[4])
local replies, at = {}, 1
while at < #ARGV do
  local reply
  local last = at + 1 + tonumber(ARGV[at + 1])
  if removed then
    reply = {removed}
  elseif limit and length >= limit then
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
