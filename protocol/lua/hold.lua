-- A lock without expiry, which a version before may have left, is free. KEYS: lock. ARGV: token, seconds until the lock
-- expires (0 releases it), text about the holder. Reply: nil if the lock is that of the token, else the text about its
-- holder.

local token = redis.call('HGET', KEYS[1], 'token')
if token and token ~= ARGV[1] and redis.pcall('TTL', KEYS[1]) ~= -1 then
  return redis.call('HGET', KEYS[1], 'holder')
end
redis.call('EXPIRE', KEYS[1], 0)
if tonumber(ARGV[2]) > 0 then
  redis.call('HSET', KEYS[1], 'token', ARGV[1], 'holder', ARGV[3])
  redis.call('EXPIRE', KEYS[1], ARGV[2])
end
