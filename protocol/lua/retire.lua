-- Refuses further requests to a model that has gone, and removes its keys in the same step unless requests are left: none
-- is added in between. Works in a full Redis, as `put_fields.lua` does.
-- KEYS: limits, the three streams, other keys. ARGV: reason, seconds for which clients are told it. Reply: number of the
-- requests that are left.

redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], 'removed', ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[2])
local left = redis.call('XLEN', KEYS[2]) + redis.call('XLEN', KEYS[3]) + redis.call('XLEN', KEYS[4])
if left == 0 then redis.call('DEL', unpack(KEYS, 2)) end
return left
