-- Replaces a text, if it is still the one that is expected. KEYS: text. ARGV: the expected text, the new one (empty to
-- delete it), seconds for which it is kept. Reply: 1 if it was the expected one.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3]) end
return 1
