-- KEYS: limits, the three streams. Reply: length of the queue, and the limit.

local length = redis.call('XLEN', KEYS[2]) + redis.call('XLEN', KEYS[3]) + redis.call('XLEN', KEYS[4])
return {length, tonumber(redis.call('HGET', KEYS[1], 'maxQueueLength') or length + 1)}
