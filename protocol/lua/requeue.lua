-- KEYS: dead letters, stream, result, pieces, limits. ARGV: letter id, fields and values of the request. Reply: entry id;
-- nil if the letter is gone; alone the reason why nothing will answer.

if redis.call('XDEL', KEYS[1], '0-0') == 0 and #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1]) == 0 then
  return false
end
local removed = redis.call('HGET', KEYS[5], 'removed')
if removed then return {removed} end
redis.call('DEL', KEYS[3], KEYS[4])
local id = redis.call('XADD', KEYS[2], '*', unpack(ARGV, 2))
redis.call('XDEL', KEYS[1], ARGV[1])
return id
