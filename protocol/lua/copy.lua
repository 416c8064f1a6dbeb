-- Without its stream, a shadow has ended. A full Redis refuses the copies, and the next run counts them as skipped.
-- KEYS: stream of the copies, counters, then per copy the hash for the answer of the request. ARGV: most copies that
-- wait, most bytes of them, seconds to keep the hashes, copies skipped before, then per copy name, uri, serde, data and
-- records.

if redis.call('EXISTS', KEYS[1]) == 0 then return end
local waiting, skipped = redis.call('XLEN', KEYS[1]), tonumber(ARGV[4])
for i = 3, #KEYS do
  local name, uri, serde, data, records = unpack(ARGV, 5 * i - 10, 5 * i - 6)
  if waiting < tonumber(ARGV[1]) and (waiting + 1) * #data <= tonumber(ARGV[2]) then
    -- The first field is missing in the original's encoding, and the second one in an entry without columns.
    local encoding = serde ~= '' and {'serde', serde} or {}
    if records ~= '' then
      encoding[#encoding + 1] = 'records'
      encoding[#encoding + 1] = records
    end
    redis.call('HSET', KEYS[i], 'uri', uri)
    redis.call('EXPIRE', KEYS[i], ARGV[3])
    redis.call('XADD', KEYS[1], '*', 'uri', name, 'data', data, 'deadline', '0', unpack(encoding))
    waiting = waiting + 1
  else
    skipped = skipped + 1
  end
end
if skipped > 0 then redis.call('HINCRBY', KEYS[2], 'skipped', skipped) end
