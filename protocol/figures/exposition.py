"""Figures of jobs, as Redis has them, and their text for Prometheus."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster_serving.protocol.figures import metrics
from cluster_serving.protocol.figures.metrics import COUNTER, GAUGE, HISTOGRAM, METRICS, Metric, of_handler
from cluster_serving.protocol.figures.stats import JobStats
from cluster_serving.protocol.keys import GROUP, REFUSED_MODEL, JobKeys, as_text
from cluster_serving.protocol.scripts import BACKLOG, Call
from cluster_serving.protocol.slots import SILENT_AFTER_S, SlotReport, read_reports, slot_states


@dataclass(frozen=True)
class Reading:
    """What Redis knows of the figures of a job at one time.

    Attributes:
        job: `jobName`.
        slots: Fields of each slot that has counted, by version and index.
        of_job: Values of the metrics of the whole job.
        reports: Reports of the slots.
        time: Time by the clock of Redis, in seconds since the epoch.
    """

    job: str
    slots: Mapping[tuple[str, str], Mapping[str, int]]
    of_job: Mapping[str, int]
    reports: Sequence[SlotReport]
    time: float = 0.0

    @classmethod
    def of(cls, job: str, replies: Sequence[Any]) -> Reading:
        """Read the replies to `questions`."""
        totals, (length, oldest_ms), dead, refused, memory, disk, (seconds, microseconds), *reports = replies
        slots: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        for name, value in totals.items():
            version, slot, field = as_text(name).split("/", 2)
            slots[version, slot][field] = int(value)
        for values in slots.values():
            if values.get(metrics.ALIVE, 0) < 1000 * (seconds - SILENT_AFTER_S):
                for metric in METRICS:
                    if metric.kind == GAUGE:
                        values.pop(metric.name, None)
        writes = disk.get("aof_last_write_status"), disk.get("rdb_last_bgsave_status")
        of_job = {
            metrics.QUEUE.name: length,
            metrics.OLDEST.name: 1000 * oldest_ms,
            metrics.DEAD.name: dead,
            metrics.REFUSED.name: int(bool(refused)),
            metrics.REDIS_MEMORY.name: memory["used_memory"],
            metrics.REDIS_LIMIT.name: memory.get("maxmemory", 0),
            metrics.REDIS_DISK.name: int("err" in writes),
        }
        told = [report for each in reports for report in read_reports(each, seconds)]
        return cls(job, slots, of_job, told, seconds + microseconds / 1e6)

    def totals(self) -> dict[str, JobStats]:
        """Return the totals of each version, which are those of its slots together."""
        versions: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for (version, _), values in self.slots.items():
            versions[version].update(values)
        return {version: JobStats.read(counts) for version, counts in versions.items()}

    def of_slots(self, metric: Metric) -> Iterator[tuple[dict[str, str], str, float]]:
        """Yield labels, suffix and value of each sample of a metric."""
        if metric is metrics.SLOTS:
            for version in sorted({report.version for report in self.reports}):
                for state, count in slot_states(r for r in self.reports if r.version == version).items():
                    yield {"version": version, "state": state}, "", count
        elif metric is metrics.RESTARTS:
            # A canary may have the version of the generation that serves.
            restarts: Counter[tuple[str, str]] = Counter()
            for report in self.reports:
                restarts[report.version, str(report.index)] += report.restarts
            for (version, slot), count in restarts.items():
                yield {"version": version, "slot": slot}, "", count
        for (version, slot), values in sorted(self.slots.items()):
            for suffix, labels, value in metric.samples(values):
                yield {"version": version, "slot": slot, **labels}, suffix, value

    def handled(self) -> set[tuple[str, str]]:
        """Return kind and name of the metrics of the handler."""
        prefix = f"{metrics.HANDLER}_"
        names = (name.split(":") for values in self.slots.values() for name in values if name.startswith(prefix))
        return {(HISTOGRAM if len(parts) > 1 else COUNTER, parts[0].partition("_")[2]) for parts in names}


def questions(job: str, generations: Iterable[int] = ()) -> list[list[Any]]:
    """Return the commands whose replies are a `Reading`; `generations` are those beside the one that serves."""
    keys = JobKeys(job)
    return [
        ["HGETALL", keys.slot_stats],
        Call(BACKLOG, keys.streams, [GROUP]).command(by_text=True),
        ["XLEN", keys.dead_letters],
        ["HGET", keys.controller, REFUSED_MODEL],
        ["INFO", "memory"],
        ["INFO", "persistence"],
        ["TIME"],
        *(["HGETALL", keys.slots(number)] for number in (None, *generations)),
    ]


def exposition(readings: Iterable[Reading]) -> str:
    """Return the metrics of jobs in the text format of Prometheus."""
    known = list(readings)
    handled = [of_handler(*each) for each in sorted({each for reading in known for each in reading.handled()})]
    return "".join(_family(metric, known) for metric in (*METRICS, *handled))


def _family(metric: Metric, readings: Sequence[Reading]) -> str:
    lines = []
    for reading in readings:
        values = metric.samples(reading.of_job) if metric.of_job else ()
        samples = [(labels, suffix, value) for suffix, labels, value in values]
        for labels, suffix, value in samples or reading.of_slots(metric):
            told = {"serving_job": reading.job, **labels}
            shown = ",".join(f'{name}="{_escaped(text)}"' for name, text in told.items())
            lines.append(f"{metric.full_name}{suffix}{{{shown}}} {value:.15g}\n")
    if not lines:
        return ""
    return f"# HELP {metric.full_name} {metric.text}\n# TYPE {metric.full_name} {metric.kind}\n{''.join(lines)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
