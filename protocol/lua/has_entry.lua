-- KEYS: stream. ARGV: entry id.

return #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])
