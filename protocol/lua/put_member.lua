-- Works in a full Redis, as `put_fields.lua` does. KEYS: set. ARGV: member.

redis.call('SREM', KEYS[1], '') redis.call('SADD', KEYS[1], ARGV[1])
