-- KEYS: stream of the copies, then per answer the hash that awaits it. ARGV: most bytes of the answers that wait,
-- seconds to keep them, then per answer its bytes, the number of its fields and values, and these. Reply: numbers of the
-- answers, from 1, whose copy is not there.

local waiting, at, missing = redis.call('XLEN', KEYS[1]), 3, {}
for i = 2, #KEYS do
  local bytes, fields = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  if (waiting + 1) * bytes > tonumber(ARGV[1]) then
    redis.call('DEL', KEYS[i])
  elseif redis.call('EXISTS', KEYS[i]) == 1 then
    redis.call('HSET', KEYS[i], unpack(ARGV, at + 2, at + 1 + fields))
    redis.call('EXPIRE', KEYS[i], ARGV[2])
  else
    missing[#missing + 1] = i - 1
  end
  at = at + 2 + fields
end
return missing
