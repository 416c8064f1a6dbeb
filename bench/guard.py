"""`make bench-guard`: two ratios in two minutes, for every change.

It measures Cluster Serving against the bare loop and against plain FastAPI, with images and 8 in flight. The ratios are
printed and appended to a file of history. The command fails if requests are lost or wrong, or nothing was measured; it
does not fail because of a ratio, which noise may change.
"""

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from cluster_serving.bench.load import payload
from cluster_serving.bench.load.generator import Load
from cluster_serving.bench.load.output import machine
from cluster_serving.bench.suite import models, peers, rows
from cluster_serving.bench.suite.session import Measurement, Session, Settings, middle
from cluster_serving.bench.suite.stack import Stack

_FOLDER = Path(".bench")
_ROUNDS = 3


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


def guard() -> Measurement:
    """Measure both ratios."""
    settings = Settings(rounds=_ROUNDS, warm_up=1.0, window=1.0, most_windows=4)
    session = Session(settings, _FOLDER, _FOLDER / "guard.json", print, environments=Path(sys.executable).parent)
    model = models.ensure(_FOLDER / "models", "mobilenet")
    work = peers.Work("jpeg", model, payload.image_records("x", "synthetic"), session.cores, 1)
    right = peers.bare_answers(work, _FOLDER / "logs")
    with Stack() as stack:
        stack.start("guard", model, threadPerModel=session.cores, postProcessing="topN(1)")
        # The references are its own single answers: in bfloat16 a network of fixed sizes rounds differently.
        load = Load("closed", "async", rows.IN_FLIGHT)
        ours = partial(session.measure, stack.endpoint("guard", work.records), load, stack.roles())
        bare = partial(rows.bare, session, stack, work, 1)
        fastapi = partial(rows.peer, session, stack, "fastapi", work, rows.IN_FLIGHT, right)
        return session.compare(ours, {"bare loop": bare, "plain FastAPI": fastapi})


def main(history: Annotated[Path, typer.Argument()] = Path("bench/history.jsonl")) -> None:
    """Measure, print and append to the history."""
    measured = guard()
    ratios = {name: other.get("ratio") for name, other in measured["others"].items()}
    line: dict[str, Any] = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "ours": round(middle(measured["ours"], "rate"), 1),
        "ratios": ratios,
        "machine": machine(),
    }
    history.parent.mkdir(parents=True, exist_ok=True)
    with history.open("a", encoding="utf8") as file:
        file.write(json.dumps(line) + "\n")
    for name, ratio in ratios.items():
        if ratio:
            print(f"ours to {name}: {ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})")
    if lines := problems(measured):
        print("\n".join(lines))
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
