-- A page ends after about 1 MiB or 1000 entries, so that Redis can serve other clients in between.
-- KEYS: stream. ARGV: newest entry of the page, field, its value (optional). Reply: see `page_call`.

local last, seen, bytes, matches = ARGV[1], 0, 0, {}
while seen < 1000 and bytes < 1048576 do
  -- Entries may have many megabytes each.
  local count = (seen == 0 or bytes > 65536 * seen) and 1 or 16
  local entries = redis.call('XREVRANGE', KEYS[1], last, '-', 'COUNT', count)
  if #entries == 0 then return {'', matches} end
  for _, entry in ipairs(entries) do
    for i = 1, #entry[2], 2 do
      local value = entry[2][i + 1]
      bytes = bytes + #value
      if entry[2][i] == ARGV[2] and (not ARGV[3] or value == ARGV[3]) then matches[#matches + 1] = {entry[1], value} end
    end
  end
  seen = seen + #entries
  last = '(' .. entries[#entries][1]
end
return {last, matches}
