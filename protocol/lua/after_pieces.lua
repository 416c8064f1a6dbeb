-- Start of a script. The answer, or an error in its place, follows the last piece of the last attempt.

local function id_after_pieces(key)
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  local attempt, number = string.match(last and last[1] or '1-0', '(%d+)-(%d+)')
  return attempt .. '-' .. (number + 1)
end
