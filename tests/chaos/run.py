"""Faults at random times under load: every request is answered, once and with its own result.

python -m tests.chaos.run --rounds 20 --seed 7
python -m tests.chaos.run --minutes 60 --every 120
"""

import argparse
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.chaos.faults import FAULTS, kept_processes
from tests.chaos.load import Load
from tests.chaos.system import JOBS, System
from tests.support.fixtures.waiting import wait_until

SETTLE = 8.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=0, help="run for so long instead of a number of rounds")
    parser.add_argument("--every", type=float, default=SETTLE, help="seconds between two faults")
    parser.add_argument("--rate", type=float, default=100, help="requests per second of each of the 8 clients")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--faults", default="", help="names separated by commas; default: all")
    options = parser.parse_args()
    names = [name for name in FAULTS if not options.faults or name in options.faults.split(",")]
    assert names, f"no such fault; there are {', '.join(FAULTS)}"
    print(f"seed {options.seed}, faults: {', '.join(names)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        system = System(Path(folder))
        try:
            passed = run(system, names, options)
        finally:
            system.close()
    sys.exit(0 if passed else 1)


def run(system, names, options):
    if system.disk is None:
        print("no small disk could be mounted (not root): 'disk is full' is left out")
        names = [name for name in names if name != "disk is full"]
    chance = random.Random(options.seed)
    loads = {name: Load(name, system.port, options.rate) for name in JOBS}
    time.sleep(5)
    before = resources(system)
    end = time.monotonic() + 60 * options.minutes
    number = 0
    while time.monotonic() < end if options.minutes else number < options.rounds:
        number += 1
        time.sleep(chance.uniform(0.5, 1) * options.every)
        # Every fault once, and then any; every fourth round two at once.
        first = names[number - 1] if number <= len(names) else chance.choice(names)
        others = [name for name in names if name != first] if number % 4 == 0 else []
        round_of(system, loads, number, [first, *chance.sample(others, min(1, len(others)))], chance)
    time.sleep(SETTLE)
    after = resources(system)
    passed = True
    for name, load in loads.items():
        ledger = load.stop()
        counts = ledger.counts
        lost = counts["accepted"] - counts["answered"] - counts["wrong"]
        print(f"{name}: {dict(counts)}; lost {lost}, wrong {counts['wrong']}, stuck {counts['stuck']}")
        passed = passed and counts["accepted"] > 0 and not (lost or counts["wrong"] or counts["stuck"])
    wait_until(lambda: system.backlog()[0] == 0, 60)
    print(f"left in the streams: {system.backlog()[0]}; results nobody waits for: {system.backlog()[1]}")
    for what, value in before.items():
        print(f"{what}: {value} before, {after.get(what)} after")
    print("passed" if passed else "FAILED")
    return passed


def round_of(system, loads, number, faults, chance):
    started = time.monotonic()
    print(f"round {number}: {' + '.join(faults)}", flush=True)
    with ThreadPoolExecutor() as pool:
        for fault in [pool.submit(FAULTS[fault], system, chance) for fault in faults]:
            fault.result()
    over = time.monotonic()
    # It is over for a client when it gets the answer to what it has sent since.
    for load in loads.values():
        wait_until(lambda load=load: load.ledger.answered_at[-1:] > [over + 1], 180)
    now = time.monotonic()
    gaps = ", ".join(f"{name} {load.ledger.longest_gap(started, now):.1f} s" for name, load in loads.items())
    print(f"  took {over - started:.1f} s; longest without answers: {gaps}")
    print("  " + ", ".join(f"{what}: {value}" for what, value in resources(system).items()), flush=True)


def resources(system):
    """What must return to where it was: memory and open files."""
    found = {"Redis memory, MB": round(system.redis.info("memory")["used_memory"] / 1e6, 1)}
    for service in ("taskmanager", "jobmanager"):
        for index, pid in enumerate(kept_processes(system.cluster, service)):
            resident = Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()
            if not resident:  # It has just been killed, and its supervisor starts the next.
                continue
            found[f"{service} {index} memory, MB"] = int(resident[0]) // 1000
            found[f"{service} {index} open files"] = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return found


if __name__ == "__main__":
    main()
