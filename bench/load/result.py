"""What a measurement found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cluster_serving.bench.load.processes import Snapshot
from cluster_serving.bench.load.stats import Latency


@dataclass(frozen=True)
class Result:
    """One row of the report; rates are requests per second.

    Attributes:
        mode: See `generator.Load`.
        client: `sync`, `async` or `http`.
        concurrency: Requests on their way at a time, at most; not used by open loop.
        generators: Generator processes.
        offered: Rate that was asked for (open loop), or at which requests were sent.
        sent_rate: Rate at which requests were sent; below `offered` if the generator could not keep up.
        achieved: Rate of answers.
        seconds: What the rates and latencies are of.
        stable: Whether the last three windows agree within 10 %; None if a number of requests was sent.
        windows: Rate of each window after the warm-up.
        latency_ms: Of answered requests.
        histogram: Of the same.
        sent: Requests in all, warm-up included; so are the counts below.
        answered: Requests with a result.
        errors: Code → requests that were answered with it.
        lost: Requests that nothing came back for.
        repeated: Answers that nobody was waiting for.
        checked: Answers that were compared with what is right.
        wrong: Answers that were not right.
        can_check: Whether the answers to different requests differ, so that a check says anything.
        cpu_seconds_per_1000: Role → CPU seconds per 1,000 answers; a cluster-wide role counts idle work too.
        cpu_share: Role → CPU seconds per second: 1 is one core.
        generator_cpu_seconds: CPU time of the generators as they saw it themselves, warm-up included.
        peak_memory_mb: Role → largest resident memory at a window's border, in MiB.
        job: What the job did meanwhile; see `work.grown`.
    """

    mode: str
    client: str
    concurrency: int
    generators: int
    offered: float
    sent_rate: float
    achieved: float
    seconds: float
    stable: bool | None
    windows: list[float]
    latency_ms: Latency
    histogram: Mapping[str, Any]
    sent: int
    answered: int
    errors: Mapping[str, int]
    lost: int
    repeated: int
    checked: int
    wrong: int
    can_check: bool
    cpu_seconds_per_1000: Mapping[str, float]
    cpu_share: Mapping[str, float]
    generator_cpu_seconds: float
    peak_memory_mb: Mapping[str, float]
    job: Mapping[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no NaN."""
        raw = asdict(self)
        raw["latency_ms"] = {name: None if math.isnan(ms) else ms for name, ms in raw["latency_ms"].items()}
        return raw


def cost(before: Snapshot, after: Snapshot, answers: int) -> tuple[dict[str, float], dict[str, float]]:
    """CPU seconds per 1,000 answers, and cores used, by role; roles without a process are left out."""
    seconds = after.time - before.time
    used = {role: after.cpu[role] - before.cpu.get(role, 0.0) for role in after.cpu if before.memory.get(role)}
    per_thousand = {role: round(cpu / answers * 1000, 4) for role, cpu in used.items()} if answers else {}
    return per_thousand, {role: round(cpu / seconds, 4) for role, cpu in used.items()} if seconds > 0 else {}
