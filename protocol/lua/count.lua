-- Adds to totals. KEYS: totals of the generation; or of the job, of the generation, and of the slots. ARGV: version and
-- slot, with which fields of the slots begin; field for the time, or empty for none; seconds that totals are kept, those
-- of the job for ever; number of gauges; these, then counters, each with its value.

local time = redis.call('TIME')
local now = string.format('%d%03d', time[1], math.floor(time[2] / 1000))
local first = 5 + 2 * ARGV[4]
for at = first, #ARGV, 2 do
  for i, key in ipairs(KEYS) do
    redis.call('HINCRBY', key, (i == 3 and ARGV[1] or '') .. ARGV[at], ARGV[at + 1])
  end
end
for i, key in ipairs(KEYS) do
  if ARGV[2] ~= '' and i < 3 then redis.call('HSET', key, ARGV[2], now) end
  if i > 1 or #KEYS == 1 then redis.call('EXPIRE', key, ARGV[3]) end
end
if KEYS[3] then
  redis.call('HSET', KEYS[3], ARGV[1] .. 'alive', now)
  for at = 5, first - 1, 2 do redis.call('HSET', KEYS[3], ARGV[1] .. ARGV[at], ARGV[at + 1]) end
  redis.call('EXPIRE', KEYS[3], ARGV[3])
end
