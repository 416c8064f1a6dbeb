-- Takes items that are due, and hides them from other processes for a while. Ends after about 1 MiB, so that Redis can
-- serve other clients in between. KEYS: times, contents. ARGV: milliseconds of that while, most. Reply: items and contents
-- in turn.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local reply, bytes = {}, 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2])) do
  if bytes >= 1048576 then break end
  local content = redis.call('HGET', KEYS[2], id)
  redis.call('ZADD', KEYS[1], now + ARGV[1], id)
  if content then
    reply[#reply + 1] = id
    reply[#reply + 1] = content
    bytes = bytes + #content
  else
    redis.call('ZREM', KEYS[1], id)
  end
end
return reply
