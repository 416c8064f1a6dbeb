"""Restarts of a job of each engine with several slots, while a client sends requests.

Usage: python -m tests.support.programs.restarts [--restarts 5] [--slots 4] [names]

The jobs share one Flink, whose TaskManager loads the model of a job in all slots at once. A restart counts as right if
its command succeeds, if no slot failed meanwhile, and if each answer is that of the first start.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.fixtures.cluster import Cluster
from tests.support.payloads.loadable import LOADABLE

_LONGEST_S = 600.0
"""Seconds after which a command counts as one that hangs."""


def main(names: list[str], slots: int, restarts: int) -> bool:
    """Start a job of each model, restart it, and print a line for each. Return True if all went right."""
    good = True
    with tempfile.TemporaryDirectory() as root:
        cluster = Cluster(Path(root, "cluster"))
        try:
            for at, name in enumerate(names):
                folder = Path(root, f"model{at}")
                folder.mkdir()
                began = time.monotonic()
                counts = _tried(cluster, f"job{at}", name, folder, slots, restarts)
                starts, answers = counts.pop("start", 0), counts.pop("answer", 0)
                good &= not counts
                taken = time.monotonic() - began
                print(f"{name}: {starts} starts and {answers} answers right, {counts.total()} wrong, {taken:.0f} s")
                for problem, count in counts.most_common(5):
                    print(f"    {count} times {problem}")
                sys.stdout.flush()
        finally:
            cluster.shutdown()
    return good


def _tried(cluster: Cluster, job: str, name: str, folder: Path, slots: int, restarts: int) -> Counter[str]:
    loadable = LOADABLE[name]
    loadable.save(folder)
    options = {re.sub("_(.)", lambda found: found[1].upper(), key): value for key, value in loadable.options.items()}
    if "inputShapes" in options:
        options["inputShapes"] = [list(shape) for shape in options["inputShapes"]]
    settings: dict[str, Any] = {"jobName": job, "modelPath": folder, "modelParallelism": slots, **options}
    started = cluster.run("cluster-serving-start", cwd=cluster.configure(**settings), timeout=_LONGEST_S)
    if started.returncode:
        return Counter([f"start: {started.stdout[-500:]}{started.stderr[-1500:]}"])
    counts = Counter(["start"])
    expected = _answer(cluster, job, loadable.record)
    stop = threading.Event()

    def ask() -> None:
        while not stop.wait(0.02):
            answer = _answer(cluster, job, loadable.record)
            counts["answer" if _same(answer, expected) else f"answer: {str(answer)[:300]}"] += 1

    client = threading.Thread(target=ask)
    client.start()
    try:
        for _ in range(restarts):
            done = cluster.run("cluster-serving-restart", cwd=cluster.folder / job, timeout=_LONGEST_S)
            counts["start" if not done.returncode else f"restart: {done.stdout[-500:]}{done.stderr[-1500:]}"] += 1
    finally:
        stop.set()
        client.join()
    status = cluster.run("cluster-serving-cli", "status", cwd=cluster.folder / job).stdout
    for line in status.splitlines():
        if re.match(r"\s*(last error|restarts:? *[1-9])", line, re.IGNORECASE):
            counts[f"status: {line.strip()}"] += 1
    cluster.stop(job)
    return counts


def _answer(cluster: Cluster, job: str, record: Any) -> Any:
    requests, _ = cluster.queues(job)
    try:
        return requests.predict(dict(record))
    except Exception as error:
        return error


def _same(answer: Any, expected: Any) -> bool:
    if isinstance(answer, Exception) or isinstance(expected, Exception):
        return False
    found, known = answer.outputs, expected.outputs
    if [*found] != [*known]:
        return False
    pairs = [(np.asarray(found[name]), np.asarray(known[name])) for name in known]
    return all(
        np.array_equal(one, other) if other.dtype.kind in "OU" else np.allclose(one, other, 1e-5, 1e-6)
        for one, other in pairs
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    sys.exit(not main(given.names or list(LOADABLE), given.slots, given.restarts))
