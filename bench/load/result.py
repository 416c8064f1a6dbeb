"""The result of a measurement."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cluster_serving.bench.load.processes import Snapshot
from cluster_serving.bench.load.stats import Latency
from cluster_serving.bench.load.tally import LoadTally
from cluster_serving.protocol.figures.stats import BATCH_SIZES, JobStats


@dataclass(frozen=True)
class LoadResult:
    """One row of the report; rates are requests per second.

    Attributes:
        mode: See `generator.Load`.
        client: `sync`, `async` or `http`.
        concurrency: Most requests in flight; not used by the open mode.
        generators: Generator processes.
        offered: Rate that was asked for (open mode), or at which requests were sent.
        sent_rate: Rate at which requests were sent; below `offered` if the generator could not keep up.
        achieved: Rate of answers.
        seconds: Duration over which the rates and latencies were taken.
        stable: True if the last three windows agree within 10 %; None if a number of requests was sent.
        windows: Rate of each window after the warm-up.
        latency_ms: Latencies of the answered requests.
        tally: Account of all requests, warm-up included.
        can_check: True if the answers to different requests differ; otherwise a check says nothing.
        cpu_seconds_per_1000: Role → CPU seconds per 1,000 answers; a cluster-wide role counts idle work too.
        cpu_share: Role → CPU seconds per second: 1 is one core.
        generator_cpu_seconds: CPU time of the generators as measured by themselves, warm-up included.
        peak_memory_mb: Role → largest resident memory at a window's border, in MiB.
        job: Work of the job in this time; see `job_work`.
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
    tally: LoadTally
    can_check: bool
    cpu_seconds_per_1000: Mapping[str, float]
    cpu_share: Mapping[str, float]
    generator_cpu_seconds: float
    peak_memory_mb: Mapping[str, float]
    job: Mapping[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """Return the result for JSON: the counts of the tally stand beside the rest, and None stands for NaN."""
        raw = asdict(self) | vars(self.tally) | {"lost": self.tally.lost}
        del raw["tally"]
        raw["latency_ms"] = {name: None if math.isnan(ms) else ms for name, ms in raw["latency_ms"].items()}
        return raw


def cost(before: Snapshot, after: Snapshot, answers: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return CPU seconds per 1,000 answers, and cores used, by role; roles without a process are left out."""
    seconds = after.time - before.time
    used = {role: cpu - before.cpu[role] for role, cpu in after.cpu.items() if before.memory[role]}
    per_thousand = {role: round(cpu / answers * 1000, 4) for role, cpu in used.items()} if answers else {}
    return per_thousand, {role: round(cpu / seconds, 4) for role, cpu in used.items()}


def job_work(before: JobStats | None, after: JobStats | None) -> dict[str, Any] | None:
    """Return the work of a job between two readings of its totals; None if there was none.

    Returns:
        `batches` and their mean `batchSize`; `queueWaitMs`, the mean over requests of the wait of the oldest in their
        batch; means over batches of `inferenceMs` and `writeMs`; `batchSizes`: upper bound of the size → batches.
    """
    if before is None or after is None or after.batches <= before.batches:
        return None
    done = after - before
    counts = zip((*map(str, BATCH_SIZES), "inf"), done.batch_sizes, strict=True)
    return {
        "batches": done.batches,
        "batchSize": round(done.requests / done.batches, 2),
        "queueWaitMs": round(done.request_wait_us / max(done.requests, 1) / 1000, 3),
        "inferenceMs": round(done.compute_us / done.batches / 1000, 3),
        "writeMs": round(done.write_us / done.batches / 1000, 3),
        "batchSizes": {bound: count for bound, count in counts if count > 0},
    }
