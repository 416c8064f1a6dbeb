-- Ends an item; one that is still there leaves its dead letter first, if there is one. KEYS: times, contents, dead
-- letters. ARGV: item, most dead letters, fields and values of the letter (optional). Reply: 1 if it was there.

if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
if ARGV[3] then redis.call('XADD', KEYS[3], 'MAXLEN', ARGV[2], '*', unpack(ARGV, 3)) end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[1])
return 1
