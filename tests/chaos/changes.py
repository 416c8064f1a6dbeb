"""Changes of a job under full load: nothing is lost or wrong, and nobody waits.

python -m tests.chaos.changes --rounds 50 --changes update
python -m tests.chaos.changes --changes 'canary,scale 4,scale 2,cluster-serving-restart --in-place'
python -m tests.chaos.changes --rounds 5 --kill launcher,taskmanager --seed 7
"""

import argparse
import os
import random
import shlex
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from tests.chaos.clients import KINDS, LOST, UNNAMED, Clients, Notes
from tests.chaos.faults import kept_processes
from tests.chaos.versioned import JOB, VersionedJob
from tests.support.fixtures.waiting import wait_until

CLI = "cluster-serving-cli"
BESIDE_SECONDS = 5.0

ALL = "all"
"""All kinds of clients together."""


def new_version(job, *command):
    job.add_version()
    job.command(*command)


def bad_update(job):
    """The command must say that the version cannot be loaded."""
    with job.broken_version():
        job.command(CLI, "update", fails=True)


def beside(job, role, end):
    """Run a new version beside the old one for a while, as a canary or a shadow."""
    new_version(job, CLI, "update", f"--{role}", "10")
    time.sleep(BESIDE_SECONDS)
    job.command(CLI, end)


CHANGES = {
    "restart": lambda job: new_version(job, "cluster-serving-restart"),
    "update": lambda job: new_version(job, CLI, "update"),
    "bad update": bad_update,
    "rollback": lambda job: job.command(CLI, "rollback"),
    "canary": partial(beside, role="canary", end="promote"),
    "canary rollback": partial(beside, role="canary", end="rollback"),
    "shadow": partial(beside, role="shadow", end="promote"),
    "shadow rollback": partial(beside, role="shadow", end="rollback"),
    "scale 1": lambda job: job.command(CLI, "scale", JOB, "1"),
    "scale 2": lambda job: job.command(CLI, "scale", JOB, "2"),
    "scale 4": lambda job: job.command(CLI, "scale", JOB, "4"),
}
"""Changes by name. Any other name is a command line, which is run in the folder of the job."""


def kill_launcher(job, command, chance):
    """Kill the command that changes the job."""
    command.kill()


def kill_kept(job, command, chance, service):
    """Kill one of the processes of a service, of the old or the new."""
    if kept := kept_processes(job.cluster, service):
        with suppress(ProcessLookupError):
            os.kill(chance.choice(kept), signal.SIGKILL)


KILLS = {
    "launcher": kill_launcher,
    "taskmanager": partial(kill_kept, service="taskmanager"),
    "jobmanager": partial(kill_kept, service="jobmanager"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--changes", default="restart", help=f"of each round, by commas: {'; '.join(CHANGES)}; commands"
    )
    parser.add_argument("--clients", default=",".join(KINDS), help="kinds by commas; default: all")
    parser.add_argument("--slots", type=int, default=1, help="modelParallelism at the start")
    parser.add_argument("--every", type=float, default=10, help="seconds of load before each change")
    parser.add_argument("--kill", default="", help=f"in the middle of each change: {', '.join(KILLS)}, by commas")
    parser.add_argument("--longest", type=float, default=10, help="seconds after which a kill comes, at most")
    parser.add_argument("--unnamed", default="", help="kinds of clients whose version is not compared, by commas")
    parser.add_argument("--gaps", action="store_true", help="fail if anybody waits, too")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    # A run that is ended reports what it has seen, and leaves nothing running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        job = VersionedJob(Path(folder), options.slots)
        try:
            passed = run(job, options)
        finally:
            job.close()
    print("passed" if passed else "FAILED")
    sys.exit(0 if passed else 1)


def run(job, options):
    chance = random.Random(options.seed)
    with Clients(job.place, tuple(options.clients.split(","))) as clients:
        wait_for_answers(clients)
        job.kill = killer(options, chance)
        time.sleep(options.every)
        before = job.resident()
        ended = False
        try:
            for number in range(1, options.rounds + 1):
                for name in options.changes.split(","):
                    change(job, name)
                    # It is over for a client when it gets the answer to what it has sent since.
                    wait_for_answers(clients)
                    print(f"round {number}: {name}; TaskManagers {job.resident():.0f} MB", flush=True)
                    time.sleep(options.every)
            ended = True
        except (AssertionError, KeyboardInterrupt) as error:
            print(f"stopped: {error or type(error).__name__}", flush=True)
        after = job.resident()
        notes = clients.stop()
    right = report_totals(job, notes, set(options.unnamed.split(",")))
    waited = report_windows(job.windows, notes, options.every)
    print(f"TaskManagers: {before:.0f} MB before, {after:.0f} MB after ({after / before - 1:+.1%})")
    left = job.waiting()
    print(f"left in the streams: {left}")
    return ended and right and not left and not (options.gaps and waited)


def change(job, name):
    if name in CHANGES:
        CHANGES[name](job)
    else:
        job.command(*shlex.split(name))


def killer(options, chance):
    """Return what kills something, another thing each time; None without `--kill`."""
    chosen = [name for name in options.kill.split(",") if name]

    def kill(job, command):
        time.sleep(chance.uniform(0, options.longest))
        victim = chance.choice(chosen)
        if command.poll() is None:
            print(f"  kill {victim}", flush=True)
            KILLS[victim](job, command, chance)

    return kill if chosen else None


def wait_for_answers(clients):
    """Return when all kinds of clients have got further answers."""
    before = clients.answered
    wait_until(lambda: all(count > before[kind] + 10 for kind, count in clients.answered.items()), 300)


def report_totals(job, notes, unnamed):
    """Print what became of all requests; return False if one is lost or wrong."""
    right = True
    for kind, noted in notes.items():
        known = np.isin(noted.given, job.versions)
        named = np.full(known.shape, False) if kind in unnamed else noted.named != UNNAMED
        lost = int((noted.given == LOST).sum())
        wrong = int((~known | named & (noted.named != noted.given)).sum()) - lost
        waits = noted.ended - noted.sent
        print(
            f"{kind}: {len(waits):,} requests, lost {lost}, wrong {wrong}, {dict(noted.errors) or 'no errors'}; "
            f"{named.mean():.0%} name their version; longest wait {waits.max(initial=0):.2f} s, longest gap "
            f"{longest_gap(noted.answered, -np.inf, np.inf):.2f} s"
        )
        right = right and len(waits) > 0 and not lost and not wrong
    return right


def report_windows(windows, notes, seconds):
    """Print the longest waits and gaps in each window; return the number of windows with a gap that is too long.

    In an undisturbed change, no gap may be longer than 2 times the p99 of the `seconds` before it, plus 100 ms.
    """
    too_long = Counter()
    notes = notes | {ALL: merged(list(notes.values()))}
    ends, begins = [0.0, *(window.end for window in windows)], [*(window.begin for window in windows[1:]), np.inf]
    for window, since, until in zip(windows, ends, begins, strict=False):
        disturbed = ", disturbed" if window.is_disturbed else ""
        print(f"{window.label}: {window.end - window.begin:.1f} s{disturbed}")
        over = set()
        for kind, noted in notes.items():
            waits = noted.ended - noted.sent
            earlier = waits[(noted.ended > max(since, window.begin - seconds)) & (noted.ended < window.begin)]
            meanwhile = waits[(noted.ended > window.begin) & (noted.sent < window.end)]
            p99 = float(np.percentile(earlier, 99, method="higher")) if earlier.size else 0.0
            gap = longest_gap(noted.answered, window.begin, window.end)
            allowed = 2 * p99 + 0.1
            over |= {kind} if gap > allowed else set()
            print(
                f"  {kind:9} p99 before {1000 * p99:6.0f} ms, longest wait {1000 * meanwhile.max(initial=0):6.0f} ms, "
                f"longest gap {1000 * gap:6.0f} ms{f' > {1000 * allowed:.0f} ms' if gap > allowed else ''}"
            )
        if not window.is_disturbed:
            too_long.update({"any": bool(over), ALL: ALL in over})
        print(f"  then answered by {shares(notes[ALL], window.end, until)}")
    undisturbed = sum(not window.is_disturbed for window in windows)
    print(
        f"of {undisturbed} undisturbed changes, {too_long['any']} had a gap too long for a kind of clients, "
        f"{too_long[ALL]} for all together"
    )
    return too_long["any"]


def longest_gap(times, begin, end):
    """Return the longest time between two answers, of those times that overlap the one from `begin` to `end`."""
    ordered = np.sort(times)
    gaps = np.diff(ordered)
    return float(gaps[(ordered[1:] > begin) & (ordered[:-1] < end)].max(initial=0))


def shares(noted, begin, end):
    """Return the versions of the requests that were sent and answered in a time, with the share of each, as text."""
    chosen = noted.given[(noted.sent > begin) & (noted.ended < end) & (noted.given != LOST)]
    versions, counts = np.unique(chosen, return_counts=True)
    found = ", ".join(
        f"{version:.0f}: {count / chosen.size:.2%}" for version, count in zip(versions, counts, strict=True)
    )
    return f"{found} of {chosen.size:,}"


def merged(notes):
    """Return the notes of several kinds of clients as those of one."""
    arrays = zip(*((noted.sent, noted.ended, noted.given, noted.named) for noted in notes), strict=True)
    return Notes(*map(np.concatenate, arrays), sum((noted.errors for noted in notes), Counter()))


if __name__ == "__main__":
    main()
