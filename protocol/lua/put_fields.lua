-- At its memory limit Redis refuses commands that may need memory, except to a script that has written before. Only the
-- job can make room again, so the job has to start and to go on.
-- KEYS: hash. ARGV: "all" to replace the hash or "some" to set fields, fields and values.

redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
if ARGV[1] == 'all' then redis.call('DEL', KEYS[1]) end
for at = 2, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1]) end
