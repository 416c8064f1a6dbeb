-- Writes what a controller says about itself, unless a later one has taken over. Works in a full Redis, as `put_fields.lua`
-- does. KEYS: controller. ARGV: time of its start, seconds until the hash expires, fields and values. Reply: 1; 0 if a
-- later controller is there.

local since = redis.call('HGET', KEYS[1], 'since')
if since and tonumber(since) > tonumber(ARGV[1]) then return 0 end
redis.call('EXPIRE', KEYS[1], 0)
redis.call('HSET', KEYS[1], 'since', ARGV[1], unpack(ARGV, 3))
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1
