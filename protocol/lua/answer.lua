-- Not a MULTI, which cannot skip answered requests and costs the caller four times as much to write. A full Redis also
-- refuses a MULTI as a whole, while a script may go on once it has deleted something; and only answering makes room.
-- KEYS: dead letters, counter, then per answer stream and result. ARGV: group, seconds to keep results, most dead
-- letters, then per answer entry id, channel, uri, kind of announcement (line, result or uri; or pieces, of which the
-- answer is the last one), number of fields and values of the result, number of dead letters, number of fields and
-- values of each, number of records, and these lists. Reply: number of requests that were pending; or the error of a result that was refused: its
-- request is pending again.

local written, records = 0, 0
local done, lines, arrays = {}, {}, {}
local at = 4
local function list_of(lists, name)
  if not lists[name] then lists[name] = {} end
  return lists[name]
end
-- Numbers take long to become text, and most answers are alike.
local function headers(mark)
  return setmetatable({}, {__index = function(known, size)
    known[size] = mark .. size .. '\r\n'
    return known[size]
  end})
end
local array, bulk = headers('*'), headers('$')
local function refused(...)
  local reply = redis.pcall(...)
  return type(reply) == 'table' and reply.err and reply
end
local failure
for i = 3, #KEYS, 2 do
  local stream, key = KEYS[i], KEYS[i + 1]
  local id, channel, uri, kind, fields, letters, size, count = unpack(ARGV, at, at + 7)
  fields, letters, size, at = tonumber(fields), tonumber(letters), tonumber(size), at + 8
  local last = at + fields + letters * size - 1
  local last_id = kind == 'pieces' and id_after_pieces(key)
  if redis.call('XACK', stream, ARGV[1], id) == 1 then
    if last_id then
      failure = refused('XADD', key, last_id, unpack(ARGV, at, at + fields - 1))
    else
      -- A hash left by an earlier request of the same uri may hold fields that this one does not.
      failure = refused('EXPIRE', key, 0) or refused('HSET', key, unpack(ARGV, at, at + fields - 1))
    end
    failure = failure or refused('EXPIRE', key, ARGV[2])
    if failure then
      redis.call('XCLAIM', stream, ARGV[1], 'refused', 0, id, 'FORCE', 'JUSTID')
      break
    end
    table.insert(list_of(done, stream), id)
    for j = at + fields, last, size do
      redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], '*', unpack(ARGV, j, j + size - 1))
    end
    if kind == 'line' or kind == 'pieces' then
      table.insert(list_of(lines, channel), uri)
    else
      local list, told = list_of(arrays, channel), kind == 'uri' and at - 1 or at + fields - 1
      local n = #list
      list[n + 1], list[n + 2], list[n + 3], list[n + 4] = array[told - at + 2], bulk[#uri], uri, '\r\n'
      for j = at, told do
        n = n + 3
        list[n + 2], list[n + 3], list[n + 4] = bulk[#ARGV[j]], ARGV[j], '\r\n'
      end
    end
    written, records = written + 1, records + count
  end
  at = last + 1
end
-- One command for many entries costs a fraction of many commands; unpack takes some thousand values.
for stream, ids in pairs(done) do
  for i = 1, #ids, 1000 do redis.call('XDEL', stream, unpack(ids, i, math.min(i + 999, #ids))) end
end
-- A client that is not told looks by itself.
if written > 0 then redis.pcall('INCRBY', KEYS[2], records) end
for channel, uris in pairs(lines) do redis.pcall('PUBLISH', channel, table.concat(uris, '\n')) end
for channel, answers in pairs(arrays) do redis.pcall('PUBLISH', channel, table.concat(answers)) end
return failure or written
