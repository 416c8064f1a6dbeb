-- An entry is being computed if it is pending in the group. Without a group, no job has ever read the stream. Only an
-- answer in pieces can be stopped then: the slot finds the request gone when it writes the next piece.
-- KEYS: stream, limits, result in our encoding, result in the original's, pieces, result of 0.7 and 0.8 (optional).
-- ARGV: group, entry id, uri, seconds to keep the result, its fields and values (optional). Reply: 0 if the request is
-- not waiting, else 1, or payload folder and file.

local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1)
local is_pending = not pending.err and #pending > 0
local entries = redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2])
if #entries == 0 then return 0 end
local entry = {}
for i = 1, #entries[1][2], 2 do entry[entries[1][2][i]] = entries[1][2][i + 1] end
local in_pieces = entry.reply_with == 'pieces'
if entry.uri ~= ARGV[3] or (is_pending and not in_pieces) then return 0 end
redis.call('XDEL', KEYS[1], '0-0')
local ttl, channel = redis.call('HGET', KEYS[2], 'resultTtl') or ARGV[4], entry.reply_to
if #ARGV > 4 and in_pieces then
  redis.call('EXPIRE', KEYS[5], ttl)
  redis.call('XADD', KEYS[5], id_after_pieces(KEYS[5]), 'end', '', unpack(ARGV, 5))
  redis.call('EXPIRE', KEYS[5], ttl)
  channel = KEYS[5]
elseif #ARGV > 4 then
  -- Each client looks for its result elsewhere.
  local key = entry.serde == 'arrow' and KEYS[3] or entry.image and not entry.data and KEYS[6] or KEYS[4]
  redis.call('EXPIRE', key, 0)
  redis.call('HSET', key, unpack(ARGV, 5))
  redis.call('EXPIRE', key, ttl)
  if not channel or channel == '' then channel = KEYS[4] end
end
if is_pending then redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) end
redis.call('XDEL', KEYS[1], ARGV[2])
-- A client that is not told looks by itself.
if #ARGV > 4 then redis.pcall('PUBLISH', channel, ARGV[3]) end
if entry.data_file then return {redis.call('HGET', KEYS[2], 'payloadFolder') or '', entry.data_file} end
return 1
