"""One measurement: generator processes, warm-up, windows until the rate is stable, and costs."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from cluster_serving.bench.load.generator import Generators, Load
from cluster_serving.bench.load.processes import Processes, Snapshot
from cluster_serving.bench.load.recorder import Checker
from cluster_serving.bench.load.result import LoadResult, cost, job_work
from cluster_serving.bench.load.stats import STABLE_WINDOWS, Latency, Samples, is_stable
from cluster_serving.bench.load.tally import LoadTally
from cluster_serving.bench.load.target import Endpoint, references
from cluster_serving.protocol.figures.stats import JobStats
from cluster_serving.protocol.inputs import Array

_GENERATOR = "load generator"


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


def measure(
    plan: Plan, report: Callable[[str], None] = lambda _: None, right: Sequence[Array] | None = None
) -> LoadResult:
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
    """Windows of a measurement, and what was seen at their borders."""

    def __init__(self, plan: Plan, generators: Generators) -> None:
        self._plan = plan
        self._generators = generators
        self._processes = Processes({**plan.roles, _GENERATOR: generators.pids})
        # Snapshot, requests sent so far, and totals of the job, at each border.
        self._borders: list[tuple[Snapshot, int, JobStats | None]] = []
        self._rates: list[float] = []

    def run(self, report: Callable[[str], None]) -> None:
        """Warm up, then take windows until the rate is stable; or, with a number of requests, until they are done."""
        plan, generators = self._plan, self._generators
        if plan.load.requests is not None:
            self._border()
            generators.go()
            self._wait(math.inf)
            self._border()
            return
        generators.go()
        self._wait(time.perf_counter() + plan.warm_up)
        begin = self._border()
        while len(self._rates) < plan.most_windows and not is_stable(self._rates) and not generators.ended:
            self._wait(begin.time + plan.window)
            end = self._border()
            # The newest reports have not arrived yet; the last window is counted again at the end.
            self._rates.append(_rate(generators.samples[0], begin, end))
            report(f"window {len(self._rates)}: {self._rates[-1]:,.0f} requests/s")
            begin = end

    def result(self, tally: LoadTally, generator_cpu: float, can_check: bool) -> LoadResult:
        """Return the result of the last windows if the rate is stable, else of all windows."""
        plan, (finished, latencies) = self._plan, self._generators.samples
        stable, limited = is_stable(self._rates), plan.load.requests is not None
        snapshots, sent, stats = zip(*self._borders, strict=True)
        start = -STABLE_WINDOWS - 1 if stable else 0
        first, last = snapshots[start], snapshots[-1]
        begin, end, sent_meanwhile = first.time, last.time, sent[-1] - sent[start]
        if limited:
            end, sent_meanwhile = finished.max() if finished.size else end, tally.sent
            # The generator processes have ended; their own count of CPU time stands for the snapshot.
            last = replace(last, cpu={**last.cpu, _GENERATOR: first.cpu[_GENERATOR] + generator_cpu})
        chosen = (finished >= begin) & (finished <= end)
        count, seconds = int(chosen.sum()), float(end - begin)
        cpu, share = cost(first, last, count)
        return LoadResult(
            mode=plan.load.mode,
            client=plan.load.client if plan.endpoint.kind == "redis" else "http",
            concurrency=plan.load.concurrency,
            generators=len(self._generators.pids),
            offered=round(plan.load.rate if plan.load.mode == "open" else sent_meanwhile / seconds, 2),
            sent_rate=round(sent_meanwhile / seconds, 2),
            achieved=round(count / seconds, 2),
            seconds=round(seconds, 3),
            stable=None if limited else stable,
            windows=[round(_rate(finished, *borders), 2) for borders in pairwise(snapshots)],
            latency_ms=Latency.of(latencies[chosen]),
            tally=tally,
            can_check=can_check,
            cpu_seconds_per_1000=cpu,
            cpu_share=share,
            generator_cpu_seconds=round(generator_cpu, 3),
            peak_memory_mb={role: round(max(s.memory[role] for s in snapshots) / 2**20, 1) for role in first.memory},
            job=job_work(stats[start], stats[-1]),
        )

    def _border(self) -> Snapshot:
        self._generators.receive()
        job_stats, snapshot = self._plan.job_stats(), self._processes.snapshot()
        self._borders.append((snapshot, self._generators.sent, job_stats))
        return snapshot

    def _wait(self, until: float) -> None:
        while (remaining := until - time.perf_counter()) > 0 and not self._generators.ended:
            time.sleep(min(0.1, remaining))
            self._generators.receive()


def _rate(finished: Samples, begin: Snapshot, end: Snapshot) -> float:
    """Return the answers per second between two snapshots."""
    return float(((finished >= begin.time) & (finished < end.time)).sum()) / (end.time - begin.time)
