"""One session of the benchmark: settings, file of results, and comparisons."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from statistics import median
from typing import Any

from cluster_serving.bench.load.generator import Load
from cluster_serving.bench.load.measure import Plan, measure
from cluster_serving.bench.load.output import machine
from cluster_serving.bench.load.stats import ratio
from cluster_serving.bench.load.target import Endpoint, Failed
from cluster_serving.bench.suite.peers import Peers
from cluster_serving.bench.suite.stack import Unavailable
from cluster_serving.protocol.host import cgroup
from cluster_serving.protocol.inputs import Array

Report = Callable[[str], None]
"""Prints a line of progress."""

Measurement = dict[str, Any]
"""`rate` (answers per second), and further results, such as those of `LoadResult`."""

Run = Callable[[], Measurement]
"""Measures once."""


@dataclass(frozen=True)
class BenchSettings:
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
        file_rows: Rows of a file.
        file_images: Images of a folder.
        flink_rows: Vectors of a Flink job.
        waiting: Requests that wait for a folder of models.
        idle: Seconds for which a job is watched that nobody asks.
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
    file_rows: int = 1_000_000
    file_images: int = 4_000
    flink_rows: int = 200_000
    waiting: int = 12_000
    idle: float = 30.0

    @classmethod
    def quick(cls, peers: tuple[str, ...]) -> BenchSettings:
        """Return settings that take seconds, to see that everything runs; the numbers mean little."""
        return cls(
            rounds=1, warm_up=0.5, window=0.5, most_windows=3, peers=peers, request_counts=(1, 100, 1_000),
            payload_bytes=(100, 100_000), clients=(1, 8), slots=((1, 2), (2, 2)), backlog=2_000,
            file_rows=20_000, file_images=64, flink_rows=20_000, waiting=2_000, idle=5.0,
        )  # fmt: skip


@dataclass
class BenchSession:
    """The results so far, by row. They are read from `file`, which is written after every row.

    Models and logs go to `folder`. `environments` is that of the peers.
    """

    settings: BenchSettings
    folder: Path
    file: Path
    report: Report
    environments: Path = Path(".bench/venvs")
    rows: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.file.exists():
            kept = json.loads(self.file.read_text("utf8"))
            # Rows of other settings cannot be compared with new ones. Rows of other peers can.
            if kept["settings"] | {"peers": []} == json.loads(json.dumps(asdict(self.settings))) | {"peers": []}:
                self.rows = {name: row for name, row in kept["rows"].items() if "failed" not in row}

    @property
    def peers(self) -> Peers:
        """The other servers."""
        return Peers(self.environments, self.folder / "logs")

    @property
    def cores(self) -> int:
        """Number of cores that may be used."""
        return cgroup.cores()

    def run(self, name: str, row: Callable[[BenchSession], Measurement]) -> None:
        """Measure a row, unless it was measured with these peers. A failure is reported and kept in the file."""
        if name in self.rows and set(self.settings.peers) <= set(self.rows[name].get("peers", ())):
            self.report(f"{name}: done already")
            return
        self.report(f"Measuring {name}")
        started, loads = time.perf_counter(), os.getloadavg()
        try:
            result = row(self)
        except Exception as error:
            answer = f", {error.answer}" if isinstance(error, Failed) else ""
            failure = f"{type(error).__name__}: {error}{answer}"
            self.report(f"{name}: failed: {failure}")
            result = {"failed": failure}
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
        result = measure(plan, right=right).to_dict()
        return result | {"rate": result["achieved"]}

    def compare(self, ours: Run, others: Mapping[str, Run]) -> Measurement:
        """Measure in turns: ours, other, ours, other and so on, then the same with the next other.

        Returns:
            `ours`: all measurements; `others`: name → `runs` and the `ratio` of our rate to theirs, or `failed`.
        """
        all_ours: list[Measurement] = []
        results: dict[str, Any] = {}
        for name, other in others.items():
            try:
                mine, theirs = zip(*[(ours(), other()) for _ in range(self.settings.rounds)], strict=True)
            except Unavailable as error:
                results[name] = {"failed": str(error)}
            else:
                all_ours += mine
                rates = ([run["rate"] for run in runs] for runs in (mine, theirs))
                results[name] = {"runs": theirs, "ratio": ratio(*rates)}
            self.report(f"  {name}: {results[name].get('failed') or results[name]['ratio']}")
        return {"ours": all_ours or [ours()], "others": results}

    def compare_best(
        self, layouts: Iterable[str], serve: Callable[[str], object], ours: Run, tries: Mapping[str, Mapping[str, Run]]
    ) -> Measurement:
        """Compare the job in its fastest layout with the fastest candidate of each other server.

        Returns:
            As `compare`; and `layouts`: name → fastest candidate, or the error of a server that does not start.
        """

        def candidate(layout: str) -> Measurement:
            serve(layout)
            return ours()

        names = {"ours": self._best({layout: partial(candidate, layout) for layout in layouts})}
        serve(names["ours"])
        others = {}
        for name, candidates in tries.items():
            try:
                names[name] = self._best(candidates)
                others[name] = candidates[names[name]]
            except Unavailable as error:
                self.report(f"  {name}: {error}")
                names[name] = f"failed: {error}"
        return self.compare(ours, others) | {"layouts": names}

    def _best(self, candidates: Mapping[str, Run]) -> str:
        """Measure each candidate once, and return the name of the fastest."""
        rates = {name: candidate()["rate"] for name, candidate in candidates.items()}
        self.report("  " + ", ".join(f"{name}: {rate:,.1f}/s" for name, rate in rates.items()))
        return max(rates, key=rates.__getitem__)


def middle(runs: Sequence[Mapping[str, Any]], *path: str) -> float:
    """Return the median over runs of the number at these keys; NaN if no run has one, such as without answers."""
    values: list[Any] = [reduce(getitem, path, run) for run in runs]
    return float(median([value for value in values if value is not None] or [math.nan]))
