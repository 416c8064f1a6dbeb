-- Reads dead letters without their payloads, which may have a megabyte each. KEYS: dead letters. ARGV: most of them.
-- Reply: id and fields of each, newest first; in place of `data` the number of its bytes that were kept.

local letters = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', ARGV[1])
for _, letter in ipairs(letters) do
  local fields = letter[2]
  for at = 1, #fields, 2 do
    if fields[at] == 'data' then fields[at + 1] = tostring(#fields[at + 1]) end
  end
end
return letters
