-- A command would also bring the payload of the oldest entry. KEYS: streams. ARGV: group. Reply: number of entries, and
-- milliseconds that the oldest one that no consumer has read has waited.

local length, oldest = 0, nil
for _, stream in ipairs(KEYS) do
  length = length + redis.call('XLEN', stream)
  local groups, last = redis.pcall('XINFO', 'GROUPS', stream), '0-0'
  for _, group in ipairs(groups.err and {} or groups) do
    local fields = {}
    for i = 1, #group, 2 do fields[group[i]] = group[i + 1] end
    if fields.name == ARGV[1] then last = fields['last-delivered-id'] end
  end
  local entry = redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', 1)[1]
  local added = entry and tonumber(string.match(entry[1], '^%d+'))
  if added and (not oldest or added < oldest) then oldest = added end
end
if not oldest then return {length, 0} end
local time = redis.call('TIME')
return {length, math.max(0, time[1] * 1000 + math.floor(time[2] / 1000) - oldest)}
