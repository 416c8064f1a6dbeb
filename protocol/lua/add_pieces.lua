-- Appends pieces of answers. The ids of a stream of pieces grow, so a slot that has lost the request to another attempt
-- cannot add to it. Works in a full Redis, as `put_fields.lua` does: only answers make room. KEYS: per piece its stream, and
-- that of the request. ARGV: group, seconds to keep the pieces, then per piece entry id and uri of the request, attempt
-- (0 begins one), number of the piece in its attempt, number of fields and values, and these. Reply per piece: its
-- attempt; 0 if nobody waits for it any more.

local attempts, at = {}, 3
for i = 1, #KEYS, 2 do
  local key, stream = KEYS[i], KEYS[i + 1]
  local id, uri, attempt, number, fields = unpack(ARGV, at, at + 4)
  attempt, fields, at = tonumber(attempt), tonumber(fields), at + 5
  local pending = redis.pcall('XPENDING', stream, ARGV[1], id, id, 1)
  if pending.err or #pending == 0 then
    attempt = 0
  else
    redis.call('EXPIRE', key, ARGV[2])
    if attempt == 0 then
      local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
      attempt = last and string.match(last[1], '%d+') + 1 or 1
      if last then redis.call('XADD', key, attempt .. '-0', 'restarted', '') end
    end
    local added = redis.pcall('XADD', key, attempt .. '-' .. number, unpack(ARGV, at, at + fields - 1))
    if type(added) == 'table' and added.err then
      -- The reply to this piece was lost, or another attempt has begun.
      local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
      if last[1] ~= attempt .. '-' .. number then attempt = 0 end
    else
      redis.call('EXPIRE', key, ARGV[2])
      redis.pcall('PUBLISH', key, uri)
    end
  end
  attempts[#attempts + 1] = attempt
  at = at + fields
end
return attempts
