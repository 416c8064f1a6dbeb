-- Hands pending entries over to other slots: a consumer that reads nothing gets them. KEYS: generations, streams. ARGV:
-- group, that consumer, then per entry index of its stream in KEYS, and id.

redis.call('HDEL', KEYS[1], '')
redis.call('HINCRBY', KEYS[1], 'left', 1)
for i = 3, #ARGV, 2 do
  redis.call('XCLAIM', KEYS[tonumber(ARGV[i])], ARGV[1], ARGV[2], 0, ARGV[i + 1], 'JUSTID')
end
