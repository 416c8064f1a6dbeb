-- Hands all pending entries of consumers over to one that reads nothing, and removes these consumers. KEYS: generations,
-- streams. ARGV: group, the consumer that gets them, the consumers. Reply: number of the entries. Works in a full Redis,
-- as `put_fields.lua` does, though it deletes nothing.

redis.call('HDEL', KEYS[1], '')
local released = 0
for i = 2, #KEYS do
  for j = 3, #ARGV do
    local found = redis.call('XPENDING', KEYS[i], ARGV[1], '-', '+', 1000, ARGV[j])
    while #found > 0 do
      local claim = {KEYS[i], ARGV[1], ARGV[2], 0}
      for _, entry in ipairs(found) do claim[#claim + 1] = entry[1] end
      claim[#claim + 1] = 'JUSTID'
      redis.call('XCLAIM', unpack(claim))
      released = released + #found
      local before = #found
      found = redis.call('XPENDING', KEYS[i], ARGV[1], '-', '+', 1000, ARGV[j])
      -- Entries that are not in the stream any more stay pending in old versions of Redis.
      if before < 1000 then break end
    end
    if #found == 0 then redis.call('XGROUP', 'DELCONSUMER', KEYS[i], ARGV[1], ARGV[j]) end
  end
end
if released > 0 then redis.call('HINCRBY', KEYS[1], 'left', 1) end
return released
