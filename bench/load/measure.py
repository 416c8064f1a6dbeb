"""One measurement: generator processes, warm-up, windows until the rate is stable, and costs."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cluster_serving.bench.load.generator import Generators, Load
from cluster_serving.bench.load.processes import Processes, Snapshot
from cluster_serving.bench.load.recorder import Checker
from cluster_serving.bench.load.result import Result, cost, job_work
from cluster_serving.bench.load.stats import STABLE_WINDOWS, Latency, Samples, is_stable
from cluster_serving.bench.load.tally import Tally
from cluster_serving.bench.load.target import Endpoint, references
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.stats import JobStats

_BINS = 30


@dataclass(frozen=True)
class Plan:
    """Plan of a measurement.

    Attributes:
        endpoint: Address and requests.
        load: The load of all generator processes together.
        processes: Number of generator processes.
        warm_up: Seconds that do not count.
        window: Seconds of a window.
        most_windows: Windows after which the measurement ends, stable or not.
        roles: Role → ids of the processes whose CPU time and memory are taken.
        job_stats: Reads the totals of the job; None if there are none.
    """

    endpoint: Endpoint
    load: Load
    processes: int = 1
    warm_up: float = 2.0
    window: float = 2.0
    most_windows: int = 10
    roles: Mapping[str, Sequence[int]] = field(default_factory=dict)
    job_stats: Callable[[], JobStats | None] = lambda: None


def measure(plan: Plan, report: Callable[[str], None] = lambda _: None, right: Sequence[Array] | None = None) -> Result:
    """Run a measurement. `report` is called with a line about every window.

    `right` has the right answers. If it is None, each request is asked alone before, and its answer is the right one.

    Raises:
        Failed: If a first request, alone, is answered with an error.
        Lost: If a first request is not answered.
        Stalled: If a generator process ends early.
    """
    right = list(right) if right is not None else asyncio.run(references(plan.endpoint))
    with Generators(plan.endpoint, plan.load.divide(plan.processes), right) as generators:
        measurement = _Measurement(plan, generators)
        measurement.run(report)
        tally, generator_cpu = generators.finish()
    return measurement.result(tally, generator_cpu, Checker(right).is_possible)


class _Measurement:
    """Windows of a measurement, and snapshots at their borders."""

    def __init__(self, plan: Plan, generators: Generators) -> None:
        self._plan = plan
        self._generators = generators
        self._processes = Processes({**plan.roles, "load generator": generators.pids})
        self._borders: list[Snapshot] = []
        self._sent: list[int] = []
        self._rates: list[float] = []
        self._peaks: dict[str, int] = {}
        self._job_stats: list[JobStats | None] = []
        self._stable = False

    def run(self, report: Callable[[str], None]) -> None:
        """Warm up, then take windows until the rate is stable; or, with a number of requests, until they are done."""
        self._generators.go()
        if self._plan.load.requests is not None:
            self._border()
            while not self._generators.ended:
                self._wait(time.perf_counter() + 0.1)
            self._border()
            return
        self._wait(time.perf_counter() + self._plan.warm_up)
        self._border()
        while len(self._rates) < self._plan.most_windows and not self._generators.ended:
            self._wait(self._borders[-1].time + self._plan.window)
            self._border()
            # The newest reports have not arrived yet; the last window is counted again at the end.
            self._rates.append(_rate(_joined(self._generators.finished), *self._borders[-2:]))
            report(f"window {len(self._rates)}: {self._rates[-1]:,.0f} requests/s")
            self._stable = is_stable(self._rates)
            if self._stable:
                break

    def result(self, tally: Tally, generator_cpu: float, can_check: bool) -> Result:
        """Return the result of the last three windows if the rate is stable, else of all windows."""
        plan, finished, latencies = self._plan, _joined(self._generators.finished), _joined(self._generators.seconds)
        keep = STABLE_WINDOWS + 1 if self._stable else len(self._borders)
        borders, sent, stats = self._borders[-keep:], self._sent[-keep:], self._job_stats[-keep:]
        begin, end = borders[0].time, borders[-1].time
        if plan.load.requests is not None:
            end = float(finished.max()) if finished.size else end
            offered = tally.sent / (end - begin)
        else:
            offered = (sent[-1] - sent[0]) / (end - begin)
        chosen = (finished >= begin) & (finished <= end)
        count = int(chosen.sum())
        seconds = end - begin
        cpu, share = cost(borders[0], borders[-1], count)
        if plan.load.requests is not None and count:
            # The generator processes have ended; their own count of CPU time stands for the snapshot.
            cpu["load generator"] = round(generator_cpu / count * 1000, 4)
            share["load generator"] = round(generator_cpu / seconds, 4) if seconds > 0 else 0.0
        return Result(
            mode=plan.load.mode,
            client=plan.load.client if plan.endpoint.kind == "redis" else "http",
            concurrency=plan.load.concurrency,
            generators=len(self._generators.pids),
            offered=round(plan.load.rate if plan.load.mode == "open" else offered, 2),
            sent_rate=round(offered, 2),
            achieved=round(count / seconds, 2) if seconds > 0 else 0.0,
            seconds=round(seconds, 3),
            stable=self._stable if plan.load.requests is None else None,
            windows=[round(_rate(finished, a, b), 2) for a, b in zip(self._borders, self._borders[1:], strict=False)],
            latency_ms=Latency.of(latencies[chosen]),
            histogram=_histogram(latencies[chosen]),
            sent=tally.sent,
            answered=tally.answered,
            errors=dict(tally.errors),
            lost=tally.lost,
            repeated=tally.repeated,
            checked=tally.checked,
            wrong=tally.wrong,
            can_check=can_check,
            cpu_seconds_per_1000=cpu,
            cpu_share=share,
            generator_cpu_seconds=round(generator_cpu, 3),
            peak_memory_mb={role: round(peak / 2**20, 1) for role, peak in self._peaks.items()},
            job=job_work(stats[0], stats[-1]),
        )

    def _border(self) -> None:
        self._generators.receive()
        snapshot = self._processes.snapshot()
        self._borders.append(snapshot)
        self._sent.append(self._generators.sent)
        for role, memory in snapshot.memory.items():
            self._peaks[role] = max(self._peaks.get(role, 0), memory)
        self._job_stats.append(self._plan.job_stats())

    def _wait(self, until: float) -> None:
        while (remaining := until - time.perf_counter()) > 0 and not self._generators.ended:
            time.sleep(min(0.1, remaining))
            self._generators.receive()


def _joined(parts: Sequence[Samples]) -> Samples:
    return np.concatenate(parts) if parts else np.empty(0)


def _rate(finished: Samples, begin: Snapshot, end: Snapshot) -> float:
    """Return the answers per second between two snapshots."""
    return float(((finished >= begin.time) & (finished < end.time)).sum()) / (end.time - begin.time)


def _histogram(seconds: Samples) -> dict[str, Any]:
    """Count latencies on a logarithmic scale: borders in milliseconds, and requests between them."""
    if not seconds.size:
        return {"borders_ms": [], "counts": []}
    low, high = max(float(seconds.min()), 1e-6), max(float(seconds.max()), 1.001e-6)
    borders = np.geomspace(low, max(high, low * 1.001), _BINS + 1)
    counts, _ = np.histogram(np.clip(seconds, low, high), borders)
    return {"borders_ms": [round(float(b) * 1000, 4) for b in borders], "counts": counts.tolist()}
