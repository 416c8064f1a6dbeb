-- A page ends after about 1 MiB, so that Redis can serve other clients in between. KEYS: stream of pieces. ARGV: id of
-- the last piece that the client has. Reply: id, and fields and values, of the next ones.

local pieces, bytes, last = {}, 0, ARGV[1]
while bytes < 1048576 do
  local found = redis.call('XRANGE', KEYS[1], '(' .. last, '+', 'COUNT', 16)
  if #found == 0 then break end
  for _, piece in ipairs(found) do
    pieces[#pieces + 1] = piece
    for i = 2, #piece[2], 2 do bytes = bytes + #piece[2][i] end
  end
  last = found[#found][1]
end
return pieces
