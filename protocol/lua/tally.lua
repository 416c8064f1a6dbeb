-- KEYS: stream of the copies, counters, then hashes to delete. ARGV: largest difference, most examples, number of
-- examples, these, then counters and increments.

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
