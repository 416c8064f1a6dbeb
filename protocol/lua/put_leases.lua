-- Queues items, or sets when they are looked at next. KEYS: times, contents. ARGV: milliseconds from now; 'new', or empty
-- for items that must still be there; then each item with its content, empty to keep that. Reply: 1.

local time = redis.call('TIME')
local due = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1]
for at = 3, #ARGV, 2 do
  if ARGV[2] == 'new' or redis.call('ZSCORE', KEYS[1], ARGV[at]) then
    redis.call('ZADD', KEYS[1], due, ARGV[at])
    if ARGV[at + 1] ~= '' then redis.call('HSET', KEYS[2], ARGV[at], ARGV[at + 1]) end
  end
end
return 1
