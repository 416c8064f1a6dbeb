"""Loads of models side by side: threads of one process load them at once, call them, and compare the answers.

Usage: python -m tests.support.programs.side_by_side [--rounds 50] [--processes 2] [--threads 8] [--unlocked] [names]

Each model is loaded in processes of its own, since the first load of a process differs from others, and two names with
a comma between them are loaded in the same threads. Without names, these are all models, and neighbours of them.
`--unlocked` leaves out the locks (`Format.lock`): it shows which formats need one.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import cycle, islice, pairwise
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np

from cluster_serving.job.models import ModelOptions, load_lock
from cluster_serving.job.predictor import Predictor
from cluster_serving.protocol.errors import ServingError

_LONGEST_S = 600.0
"""Seconds after which a process counts as one that hangs."""


def main(arguments: argparse.Namespace) -> bool:
    """Load the models in processes, and print a line for each. Return True if all have answered rightly."""
    from tests.support.payloads.loadable import LOADABLE

    names = list(LOADABLE)
    asked = arguments.names or [*names, *(f"{one},{other}" for one, other in pairwise(names))]
    good = True
    with tempfile.TemporaryDirectory() as root:
        for name in asked:
            unknown = [single for single in name.split(",") if not Path(root, f"{single}.pickle").exists()]
            if problems := [problem for single in unknown for problem in _in_process(["--prepare", single, root])]:
                print(f"{name}: cannot be tried: {problems[0]}", flush=True)
                good = False
                continue
            began = time.monotonic()
            counts: Counter[str] = Counter()
            for _ in range(arguments.processes):
                options = ["--rounds", str(arguments.rounds), "--threads", str(arguments.threads)]
                options += ["--unlocked"] * arguments.unlocked
                counts += _in_process(["--inside", name, root, *options])
            fine = counts.pop("right", 0)
            good &= not counts
            print(f"{name}: {fine} right, {counts.total()} wrong, {time.monotonic() - began:.0f} s", flush=True)
            for problem, count in counts.most_common(5):
                print(f"    {count} times {problem}", flush=True)
    return good


def _in_process(arguments: list[str]) -> Counter[str]:
    command = [sys.executable, "-m", __spec__.name, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_S + 60, check=False)
    except subprocess.TimeoutExpired:
        return Counter(["the process hangs"])
    if done.returncode:
        return Counter([f"the process ended with {done.returncode}: {done.stderr[-2000:]}"])
    return Counter(json.loads(done.stdout.splitlines()[-1]))


def prepare(name: str, root: Path) -> dict[str, int]:
    """Write a model into its folder, and its answer beside it; return the error if there is no answer."""
    from tests.support.payloads.loadable import LOADABLE

    loadable = LOADABLE[name]
    (root / name).mkdir()
    loadable.save(root / name)
    answer = _answer(root / name, loadable.record, loadable.options)
    if isinstance(answer, Exception):
        return {f"{type(answer).__name__}: {answer}": 1}
    # Without the functions of `LOADABLE`, since a process that loads models imports their engines at the first load.
    (root / f"{name}.pickle").write_bytes(pickle.dumps((dict(loadable.record), dict(loadable.options), answer)))
    return {}


def load(names: list[str], root: Path, rounds: int, threads: int) -> Counter[str]:
    """Load and call the models in threads, at once in each round; return what came of it, with numbers of times."""
    known = [pickle.loads((root / f"{name}.pickle").read_bytes()) for name in names]  # noqa: S301 - written above
    places = list(islice(cycle(range(len(names))), threads))
    counts: Counter[str] = Counter()
    start = Barrier(threads)

    def run(at: int) -> str:
        record, options, expected = known[at]
        start.wait()
        return _difference(_answer(root / names[at], record, options), expected)

    for _ in range(rounds):
        with ThreadPoolExecutor(threads) as pool:
            counts.update(pool.map(run, places))
    return counts


def _answer(folder: Path, record: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Load a model as a slot does, and return its answer or its error."""
    try:
        with Predictor(ModelOptions(str(folder), **options)) as predictor:
            return predictor.predict([record])[0]
    except Exception as error:
        return error


def _difference(answer: Any, expected: Any) -> str:
    if isinstance(answer, Exception):
        kind = "refused" if isinstance(answer, ServingError) else "failed"
        return f"{kind}: {type(answer).__name__}: {' '.join(str(answer).split())[-300:]}"
    if answer.keys() != expected.keys():
        return f"the outputs {[*answer]} instead of {[*expected]}"
    same = all(
        np.array_equal(answer[name], expected[name])
        if np.asarray(expected[name]).dtype.kind in "OU"
        else np.allclose(answer[name], expected[name], 1e-5, 1e-6)
        for name in expected
    )
    return "right" if same else "another answer"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--unlocked", action="store_true")
    parser.add_argument("--prepare", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    if given.prepare:
        print(json.dumps(prepare(given.names[0], Path(given.names[1]))))
    elif given.inside:
        faulthandler.dump_traceback_later(_LONGEST_S, exit=True)
        if given.unlocked:
            load_lock.held = lambda *_: nullcontext()
        print(json.dumps(load(given.names[0].split(","), Path(given.names[1]), given.rounds, given.threads)))
    else:
        sys.exit(not main(given))
