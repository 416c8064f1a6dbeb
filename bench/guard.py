"""`make bench-guard`: four ratios in four minutes, for every change.

It measures Cluster Serving against the bare loop and against plain FastAPI, with images and 8 in flight; and against
plain FastAPI with small vectors, one and 32 in flight. The ratios are printed, compared with the committed history, and
appended to a file. The command fails if requests are lost or wrong, if nothing was measured, or if a ratio has fallen
by more than its noise: even its best round is below the worst round of the latest runs on such a machine.
"""

import json
import sys
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from cluster_serving.bench.load import payload
from cluster_serving.bench.load.generator import Load
from cluster_serving.bench.load.output import machine
from cluster_serving.bench.suite import models, rows
from cluster_serving.bench.suite.peers import Work
from cluster_serving.bench.suite.session import BenchSession, BenchSettings, Measurement, Run, middle
from cluster_serving.bench.suite.stack import Stack

_FOLDER = Path(".bench")
_ROUNDS = 3
_VECTORS_IN_FLIGHT = (1, 32)
_FASTAPI = "plain FastAPI"

HISTORY = Path(__file__).with_name("history.jsonl")
"""The committed history, a line per run: `make bench-guard HISTORY=bench/history.jsonl` adds one."""

_LATEST = 5
"""Runs whose rounds are compared with."""


def problems(measured: Measurement) -> list[str]:
    """Return the reasons to fail: nothing measured, lost or wrong answers."""
    lines = []
    runs = {"ours": measured["ours"]} | {name: other.get("runs", []) for name, other in measured["others"].items()}
    for name, these in runs.items():
        if not these or not all(run["rate"] > 0 for run in these):
            lines.append(f"{name}: nothing was measured: {measured['others'].get(name, {}).get('failed', '')}")
        for kind in ("lost", "wrong"):
            if count := sum(run.get(kind, 0) for run in these):
                lines.append(f"{name}: {count} requests {kind}")
    return lines


def falls(line: Mapping[str, Any], history: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the ratios of a run that have fallen by more than their noise since the latest runs on such a machine."""
    kind = _kind(line)
    latest = [earlier for earlier in history if _kind(earlier) == kind][-_LATEST:]
    lines = []
    for name, ratio in line["ratios"].items():
        before = [earlier["ratios"][name] for earlier in latest if earlier["ratios"].get(name)]
        if not ratio or not before:
            continue
        lowest = min(other["low"] for other in before)
        if ratio["high"] < lowest:
            lines.append(
                f"ours to {name}: {ratio['median']:.3f}, at best {ratio['high']:.3f}; it was at least {lowest:.3f} in "
                f"the latest {len(before)} runs on such a machine"
            )
    return lines


def _kind(line: Mapping[str, Any]) -> tuple[str, int]:
    return line["machine"]["cpu"], line["machine"]["cores"]


def guard() -> dict[str, Measurement]:
    """Measure all ratios; return the measurement of each kind of load, whose others have names of their own."""
    settings = BenchSettings(rounds=_ROUNDS, warm_up=1.0, window=1.0, most_windows=4)
    session = BenchSession(settings, _FOLDER, _FOLDER / "guard.json", print, environments=Path(sys.executable).parent)
    loads = {"images": partial(_images, session)}
    loads |= {f"vectors, {count} in flight": partial(_vectors, session, count) for count in _VECTORS_IN_FLIGHT}
    return {name: measure() for name, measure in loads.items()}


def _images(session: BenchSession) -> Measurement:
    model = models.ensure(_FOLDER / "models", "mobilenet")
    work = Work("jpeg", model, payload.image_records("x", "synthetic"), session.cores)
    with Stack() as stack:
        stack.start("guard", model, threadPerModel=session.cores, postProcessing="topN(1)")
        bare = partial(rows.bare, session, stack, work, 1)
        fastapi = partial(rows.peer, session, stack, "fastapi", work, rows.IN_FLIGHT, session.peers.right(work))
        return session.compare(_ours(session, stack, work, rows.IN_FLIGHT), {"bare loop": bare, _FASTAPI: fastapi})


def _vectors(session: BenchSession, in_flight: int) -> Measurement:
    model = models.ensure(_FOLDER / "models", "mlp")
    work = Work("vector", model, payload.random_records("x", (64,), "float32"))
    with Stack() as stack:
        stack.start("guard", model)
        fastapi = partial(rows.peer, session, stack, "fastapi", work, in_flight)
        name = f"{_FASTAPI}, vectors, {in_flight} in flight"
        return session.compare(_ours(session, stack, work, in_flight), {name: fastapi})


def _ours(session: BenchSession, stack: Stack, work: Work, in_flight: int) -> Run:
    """Return a run of ours. Its own single answers are right: in bfloat16 a network of fixed sizes rounds otherwise."""
    load = Load("closed", "async", in_flight)
    return partial(session.measure, stack.endpoint("guard", work.records), load, stack.roles())


def main(history: Annotated[Path, typer.Argument()] = _FOLDER / "history.jsonl") -> None:
    """Measure, print, compare with the committed history, and append to a file."""
    measured = guard()
    ratios = {name: other.get("ratio") for each in measured.values() for name, other in each["others"].items()}
    line: dict[str, Any] = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "ours": {name: round(middle(each["ours"], "rate"), 1) for name, each in measured.items()},
        "ratios": ratios,
        "machine": machine(),
    }
    earlier = [json.loads(text) for text in HISTORY.read_text("utf8").splitlines()] if HISTORY.exists() else []
    if not any(_kind(other) == _kind(line) for other in earlier):
        print(f"{HISTORY.name} has no run on such a machine to compare with")
    history.parent.mkdir(parents=True, exist_ok=True)
    with history.open("a", encoding="utf8") as file:
        file.write(json.dumps(line) + "\n")
    for name, ratio in ratios.items():
        if ratio:
            print(f"ours to {name}: {ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})")
    lines = [f"{name}: {problem}" for name, each in measured.items() for problem in problems(each)]
    if lines := lines + falls(line, earlier):
        print("\n".join(lines))
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
