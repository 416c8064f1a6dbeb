-- A pipeline of commands would cost the caller more: redis-py reads each reply by a coroutine with a timeout of its own.
-- If Redis refuses a command about one result, as deleting on a full disk, the others still arrive.
-- KEYS: results to delete, results to read. ARGV: number of the former. Reply: fields and values of each result read.

local delete, results = tonumber(ARGV[1]), {}
for i = 1, delete do redis.pcall('UNLINK', KEYS[i]) end
for i = delete + 1, #KEYS do results[i - delete] = redis.pcall('HGETALL', KEYS[i]) end
return results
