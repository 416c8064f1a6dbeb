-- Writes the heartbeat of an attempt at a slot, and its report if one is given. Works in a full Redis, as `put_fields.lua`
-- does. KEYS: reports of the generation that serves, reports of this generation, generations, models whose records do not
-- share calls. ARGV: generation, index, attempt, "beat", "put" for the report too, or "take" to replace another attempt;
-- report or ''; submission, digest of the model or '', reason or '' for which its records share no calls, which is written
-- once; fields and values of the generations, which are written if Redis has lost them. Reply: 1 and the number of all
-- such reasons; 0 if another attempt has the slot, or the generation has ended; -1 if no report is there and none is
-- given.

if not redis.call('HGET', KEYS[3], 'last') then
  redis.call('HDEL', KEYS[3], '')
  for at = 9, #ARGV, 2 do redis.call('HSET', KEYS[3], ARGV[at], ARGV[at + 1]) end
end
local record = redis.call('HGET', KEYS[3], ARGV[1])
if not record and redis.call('HGET', KEYS[3], 'last') then return 0 end
local key = (not record or cjson.decode(record).role == 'serving') and KEYS[1] or KEYS[2]
local stored = redis.call('HGET', key, ARGV[2])
if stored and ARGV[4] ~= 'take' and not string.find(stored, ARGV[3], 1, true) then return 0 end
if not stored and ARGV[5] == '' then return -1 end
local time = redis.call('TIME')
redis.call('HDEL', key, ARGV[2] .. ':beat')
if ARGV[5] ~= '' then redis.call('HSET', key, ARGV[2], ARGV[5]) end
redis.call('HSET', key, ARGV[2] .. ':beat', ARGV[3] .. ' ' .. time[1])
if ARGV[8] ~= '' then
  for at = 6, 7 do
    if ARGV[at] ~= '' and not redis.call('HGET', KEYS[4], ARGV[at]) then redis.call('HSET', KEYS[4], ARGV[at], ARGV[8]) end
  end
end
return 1 + #redis.call('HGETALL', KEYS[4]) / 2
