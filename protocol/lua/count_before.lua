-- A page ends after about 1 MiB or 1000 entries, so that Redis can serve other clients in between. KEYS: stream. ARGV:
-- oldest entry of the page, entry before which to count. Reply: start of the next page (empty after the last), number.

local first, seen, bytes = ARGV[1], 0, 0
while seen < 1000 and bytes < 1048576 do
  -- Entries may have many megabytes each.
  local count = (seen == 0 or bytes > 65536 * seen) and 1 or 16
  local entries = redis.call('XRANGE', KEYS[1], first, '(' .. ARGV[2], 'COUNT', count)
  if #entries == 0 then return {'', seen} end
  for _, entry in ipairs(entries) do
    for i = 2, #entry[2], 2 do bytes = bytes + #entry[2][i] end
  end
  seen = seen + #entries
  first = '(' .. entries[#entries][1]
end
return {first, seen}
