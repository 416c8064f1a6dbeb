"""One session of the benchmark: its settings, its file of results, and how two things are compared."""

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
from cluster_serving.bench.load.target import Where
from cluster_serving.bench.suite.stack import Unavailable
from cluster_serving.protocol.inputs import Array

Say = Callable[[str], None]
Measured = dict[str, Any]
"""`rate` (answers per second), and whatever else is known; see `brief`."""


@dataclass(frozen=True)
class Settings:
    """How long and how much.

    Attributes:
        rounds: How often each pair is measured in turns.
        warm_up: Seconds before each measurement.
        window: Seconds of a window.
        most_windows: Windows after which a measurement ends.
        peers: Servers to compare with.
        request_counts: Sizes of the curve over requests.
        payload_bytes: Likewise.
        clients: Likewise.
        slots: Likewise, each with how many of them a TaskManager has.
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
        """Seconds instead of minutes, to see that everything runs; the numbers mean little."""
        return cls(1, 0.5, 0.5, 3, peers, (1, 100, 1_000), (100, 100_000), (1, 8), ((1, 2), (2, 2)), 2_000)


@dataclass
class Session:
    """Results so far.

    Attributes:
        settings: How long and how much.
        folder: For models, environments and logs.
        file: Results are read from here, and written after every row.
        say: Told what happens.
        rows: Row → its results.
    """

    settings: Settings
    folder: Path
    file: Path
    say: Say
    rows: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.file.exists():
            found = json.loads(self.file.read_text("utf8"))
            # Rows of other settings would be compared with what they are not; those of other peers would not.
            if found["settings"] | {"peers": []} == json.loads(json.dumps(asdict(self.settings))) | {"peers": []}:
                self.rows = {name: row for name, row in found["rows"].items() if "failed" not in row}

    @property
    def cores(self) -> int:
        """Cores that may be used."""
        return len(os.sched_getaffinity(0))

    def run(self, name: str, row: Callable[[Session], Measured]) -> None:
        """Measure a row unless it is done, with these peers; if it cannot be, it says why, and the others go on."""
        if name in self.rows and set(self.settings.peers) <= set(self.rows[name].get("peers", ())):
            self.say(f"{name}: done already")
            return
        self.say(f"{name}: {(row.__doc__ or '').splitlines()[0]}")
        started, loads = time.perf_counter(), os.getloadavg()
        try:
            found = row(self)
        except Exception as error:
            self.say(f"{name}: failed: {type(error).__name__}: {error}")
            found = {"failed": f"{type(error).__name__}: {error}"}
        took = round(time.perf_counter() - started, 1)
        self.rows[name] = found | {
            "peers": list(self.settings.peers),
            "took_s": took,
            "load_average_before": round(loads[0], 2),
        }
        self.save()

    def save(self) -> None:
        """Write the file, as a whole or not at all."""
        document = {"settings": asdict(self.settings), "machine": machine(), "rows": self.rows}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(document, indent=1), "utf8")
        part.replace(self.file)

    def measure(
        self,
        where: Where,
        load: Load,
        roles: Mapping[str, Sequence[int]] | None = None,
        right: Sequence[Array] | None = None,
        processes: int = 1,
    ) -> Measured:
        """One measurement with the session's windows."""
        s = self.settings
        plan = Plan(where, load, processes, s.warm_up, s.window, s.most_windows, roles)
        return brief(measure(plan, right=right))

    def compare(self, ours: Callable[[], Measured], others: Mapping[str, Callable[[], Measured]]) -> Measured:
        """Measure in turns: ours, other, ours, other, and so on; one other after the other.

        Returns:
            `ours`: all measurements; `others`: name → `runs`, and `ratio` of our rate to theirs; or `failed`.
        """
        all_ours: list[Measured] = []
        found: dict[str, Any] = {}
        for name, other in others.items():
            pairs: list[tuple[Measured, Measured]] = []
            try:
                for number in range(self.settings.rounds):
                    pairs.append((ours(), other()))
                    a, b = (pair["rate"] for pair in pairs[-1])
                    self.say(f"  round {number + 1}: ours {a:,.1f}/s, {name} {b:,.1f}/s, ratio {a / max(b, 1e-9):.2f}")
            except Unavailable as error:
                self.say(f"  {name}: {error}")
                found[name] = {"failed": str(error)}
            all_ours += [a for a, _ in pairs]
            if pairs:
                ratio = Ratio.of([a["rate"] for a, _ in pairs], [b["rate"] for _, b in pairs])
                runs = {"ours": [a["rate"] for a, _ in pairs], "runs": [b for _, b in pairs]}
                found[name] = found.get(name, {}) | runs | {"ratio": asdict(ratio) if ratio else None}
        if not all_ours:
            all_ours.append(ours())
        return {"ours": all_ours, "others": found}


def brief(result: Result) -> Measured:
    """What the file keeps of a measurement."""
    raw = result.to_dict()
    for name in ("histogram", "can_check", "repeated", "job", "client"):
        raw.pop(name)
    return {"rate": raw.pop("achieved")} | raw


def best(candidates: Mapping[str, Callable[[], Measured]], say: Say) -> str:
    """Name of the fastest; all of them get one try."""
    rates = {name: candidate()["rate"] for name, candidate in candidates.items()}
    say("  " + ", ".join(f"{name}: {rate:,.1f}/s" for name, rate in rates.items()))
    return max(rates, key=lambda name: rates[name])


def best_peers(
    tries: Mapping[str, Mapping[str, Callable[[], Measured]]], say: Say
) -> tuple[dict[str, Callable[[], Measured]], dict[str, str]]:
    """Of each peer the fastest candidate, and its name; for one that does not start, why."""
    chosen, names = {}, {}
    for peer, candidates in tries.items():
        try:
            names[peer] = best(candidates, say)
        except Unavailable as error:
            say(f"  {peer}: {error}")
            names[peer] = f"failed: {error}"
            continue
        chosen[peer] = candidates[names[peer]]
    return chosen, names


def middle(runs: Sequence[Mapping[str, Any]], *path: str) -> float:
    """Median over runs of a number, found by its keys."""
    values = []
    for run in runs:
        value: Any = run
        for key in path:
            value = value[key]
        values.append(float(value))
    return median(values)
