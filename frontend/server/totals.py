"""Totals: the metrics of several processes, added up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

Families = dict[str, dict[str, Any]]
"""Families of metrics by name, as values of JSON; each has `text`, `type` and `samples`: name, labels and value."""

_CREATED = "_created"


def families(registry: CollectorRegistry) -> Families:
    """Return the metrics of a registry."""
    return {
        metric.name: {
            "text": metric.documentation,
            "type": metric.type,
            "samples": [[sample.name, sample.labels, sample.value] for sample in metric.samples],
        }
        for metric in registry.collect()
    }


def total(parts: Iterable[Families]) -> Families:
    """Return the sums of samples that have the same name and labels. A time of creation is that of the first."""
    result: Families = {}
    for part in parts:
        for name, family in part.items():
            known = result.setdefault(name, {**family, "samples": []})
            known["samples"] = _sums([*known["samples"], *family["samples"]])
    return result


def counted(part: Families) -> Families:
    """Return the metrics without those that tell a state, which a process has no more when it has ended."""
    return {name: family for name, family in part.items() if family["type"] != "gauge"}


def as_text(part: Families) -> bytes:
    """Return metrics in the text format of Prometheus."""
    registry = CollectorRegistry()
    registry.register(_Static(part))
    return generate_latest(registry)


def _sums(samples: Sequence[list[Any]]) -> list[list[Any]]:
    values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for name, labels, value in samples:
        key = name, tuple(labels.items())
        if key not in values:
            values[key] = value
        elif name.endswith(_CREATED):
            values[key] = min(values[key], value)
        else:
            values[key] += value
    return [[name, dict(labels), value] for (name, labels), value in values.items()]


class _Static(Collector):
    def __init__(self, part: Families) -> None:
        self._part = part

    def collect(self) -> Iterator[Metric]:
        for name, family in self._part.items():
            metric = Metric(name, family["text"], family["type"])
            for sample in family["samples"]:
                metric.add_sample(*sample)
            yield metric
