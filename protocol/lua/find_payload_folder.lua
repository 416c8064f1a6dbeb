-- KEYS: limits.

return redis.call('HGET', KEYS[1], 'payloadFolder')
