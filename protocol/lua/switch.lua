-- Gives the place of the generation that serves to another one, along with the reports of its slots. KEYS: generations,
-- reports of the slots that serve, those of the next generation, those of the one before. ARGV: number and record of the
-- next generation, and of the one before (optional). Works in a full Redis, as `put_fields.lua` does.

if #ARGV > 2 and redis.call('EXISTS', KEYS[2]) == 1 then redis.call('RENAME', KEYS[2], KEYS[4]) end
if redis.call('EXISTS', KEYS[3]) == 1 then redis.call('RENAME', KEYS[3], KEYS[2]) end
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], unpack(ARGV))
