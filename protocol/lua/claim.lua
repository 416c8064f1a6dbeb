-- Claims what `hand_over.lua` or `hand_over_all.lua` has handed over. KEYS: streams. ARGV: group,
-- consumer that claims, consumer that was given the entries, most entries, milliseconds that they have been there at least, "new" for entries whose computation has not
-- begun. Reply per stream: the entries if they are new, else their ids.

local taken, most = {}, tonumber(ARGV[4])
for i, stream in ipairs(KEYS) do
  taken[i] = {}
  local found = most > 0 and redis.call('XPENDING', stream, ARGV[1], 'IDLE', ARGV[5], '-', '+', most, ARGV[3]) or {}
  if #found > 0 then
    local claim = {stream, ARGV[1], ARGV[2], 0}
    for _, entry in ipairs(found) do claim[#claim + 1] = entry[1] end
    if ARGV[6] == 'new' then
      claim[#claim + 1] = 'RETRYCOUNT'
      claim[#claim + 1] = 1
    else
      claim[#claim + 1] = 'JUSTID'
    end
    taken[i] = redis.call('XCLAIM', unpack(claim))
    most = most - #found
  end
end
return taken
