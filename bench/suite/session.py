"""One session of the benchmark: settings, file of results, and comparisons."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from cluster_serving.bench.load.generator import Load
from cluster_serving.bench.load.measure import Plan, measure
from cluster_serving.bench.load.output import machine
from cluster_serving.bench.load.result import Result
from cluster_serving.bench.load.stats import Ratio
from cluster_serving.bench.load.target import Endpoint
from cluster_serving.bench.suite.stack import Unavailable
from cluster_serving.protocol.inputs import Array

Report = Callable[[str], None]
"""Prints a line of progress."""

Measurement = dict[str, Any]
"""`rate` (answers per second), and further results; see `brief`."""


@dataclass(frozen=True)
class Settings:
    """Durations and sizes of the measurements.

    Attributes:
        rounds: Number of times that each pair is measured in turns.
        warm_up: Seconds before each measurement.
        window: Seconds of a window.
        most_windows: Windows after which a measurement ends.
        peers: Servers to compare with.
        request_counts: Points of the curve over requests.
        payload_bytes: Points of the curve over bytes per request.
        clients: Points of the curve over clients.
        slots: Points of the curve over task slots: slots in all, and slots of a TaskManager.
        backlog: Waiting requests.
    """

    rounds: int = 3
    warm_up: float = 2.0
    window: float = 2.0
    most_windows: int = 6
    peers: tuple[str, ...] = ()
    request_counts: tuple[int, ...] = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
    payload_bytes: tuple[int, ...] = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
    clients: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    slots: tuple[tuple[int, int], ...] = ((1, 2), (2, 2), (4, 2), (8, 2), (16, 8), (32, 8))
    backlog: int = 100_000

    @classmethod
    def quick(cls, peers: tuple[str, ...]) -> Settings:
        """Return settings that take seconds, to see that everything runs; the numbers mean little."""
        return cls(
            rounds=1, warm_up=0.5, window=0.5, most_windows=3, peers=peers, request_counts=(1, 100, 1_000),
            payload_bytes=(100, 100_000), clients=(1, 8), slots=((1, 2), (2, 2)), backlog=2_000,
        )  # fmt: skip


@dataclass
class Session:
    """The results so far, by row. They are read from `file`, which is written after every row.

    Models, environments and logs go to `folder`.
    """

    settings: Settings
    folder: Path
    file: Path
    report: Report
    rows: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.file.exists():
            kept = json.loads(self.file.read_text("utf8"))
            # Rows of other settings cannot be compared with new ones. Rows of other peers can.
            if kept["settings"] | {"peers": []} == json.loads(json.dumps(asdict(self.settings))) | {"peers": []}:
                self.rows = {name: row for name, row in kept["rows"].items() if "failed" not in row}

    @property
    def cores(self) -> int:
        """Number of cores that may be used."""
        return len(os.sched_getaffinity(0))

    def run(self, name: str, row: Callable[[Session], Measurement]) -> None:
        """Measure a row, unless it was measured with these peers. A failure is reported and kept in the file."""
        if name in self.rows and set(self.settings.peers) <= set(self.rows[name].get("peers", ())):
            self.report(f"{name}: done already")
            return
        self.report(f"{name}: {(row.__doc__ or '').splitlines()[0]}")
        started, loads = time.perf_counter(), os.getloadavg()
        try:
            result = row(self)
        except Exception as error:
            self.report(f"{name}: failed: {type(error).__name__}: {error}")
            result = {"failed": f"{type(error).__name__}: {error}"}
        took = round(time.perf_counter() - started, 1)
        self.rows[name] = result | {
            "peers": list(self.settings.peers),
            "took_s": took,
            "load_average_before": round(loads[0], 2),
        }
        self.save()

    def save(self) -> None:
        """Write the file atomically."""
        document = {"settings": asdict(self.settings), "machine": machine(), "rows": self.rows}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(document, indent=1), "utf8")
        part.replace(self.file)

    def measure(
        self,
        endpoint: Endpoint,
        load: Load,
        roles: Mapping[str, Sequence[int]] | None = None,
        right: Sequence[Array] | None = None,
        processes: int = 1,
    ) -> Measurement:
        """Measure with the session's windows."""
        s = self.settings
        plan = Plan(endpoint, load, processes, s.warm_up, s.window, s.most_windows, roles or {})
        return brief(measure(plan, right=right))

    def compare(self, ours: Callable[[], Measurement], others: Mapping[str, Callable[[], Measurement]]) -> Measurement:
        """Measure in turns: ours, other, ours, other and so on, then the same with the next other.

        Returns:
            `ours`: all measurements; `others`: name → `runs` and the `ratio` of our rate to theirs, or `failed`.
        """
        all_ours: list[Measurement] = []
        results: dict[str, Any] = {}
        for name, other in others.items():
            pairs: list[tuple[Measurement, Measurement]] = []
            try:
                for number in range(self.settings.rounds):
                    pairs.append((ours(), other()))
                    a, b = (pair["rate"] for pair in pairs[-1])
                    self.report(
                        f"  round {number + 1}: ours {a:,.1f}/s, {name} {b:,.1f}/s, ratio {a / max(b, 1e-9):.2f}"
                    )
            except Unavailable as error:
                self.report(f"  {name}: {error}")
                results[name] = {"failed": str(error)}
            all_ours += [a for a, _ in pairs]
            if pairs:
                ratio = Ratio.of([a["rate"] for a, _ in pairs], [b["rate"] for _, b in pairs])
                runs = {"ours": [a["rate"] for a, _ in pairs], "runs": [b for _, b in pairs]}
                results[name] = results.get(name, {}) | runs | {"ratio": asdict(ratio) if ratio else None}
        if not all_ours:
            all_ours.append(ours())
        return {"ours": all_ours, "others": results}


def brief(result: Result) -> Measurement:
    """Return the part of a result that the file keeps."""
    raw = result.to_dict()
    for name in ("histogram", "can_check", "repeated", "job", "client"):
        raw.pop(name)
    return {"rate": raw.pop("achieved")} | raw


def best(candidates: Mapping[str, Callable[[], Measurement]], report: Report) -> str:
    """Measure each candidate once, and return the name of the fastest."""
    rates = {name: candidate()["rate"] for name, candidate in candidates.items()}
    report("  " + ", ".join(f"{name}: {rate:,.1f}/s" for name, rate in rates.items()))
    return max(rates, key=lambda name: rates[name])


def best_peers(
    tries: Mapping[str, Mapping[str, Callable[[], Measurement]]], report: Report
) -> tuple[dict[str, Callable[[], Measurement]], dict[str, str]]:
    """Return the fastest candidate of each peer, and its name, or the error of a peer that does not start."""
    chosen, names = {}, {}
    for peer, candidates in tries.items():
        try:
            names[peer] = best(candidates, report)
        except Unavailable as error:
            report(f"  {peer}: {error}")
            names[peer] = f"failed: {error}"
            continue
        chosen[peer] = candidates[names[peer]]
    return chosen, names


def middle(runs: Sequence[Mapping[str, Any]], *path: str) -> float:
    """Return the median over runs of the number at these keys."""
    values = []
    for run in runs:
        value: Any = run
        for key in path:
            value = value[key]
        values.append(float(value))
    return median(values)
