"""Comparison of a shadow with the generation that serves, as the commands show it (`protocol.figures.comparison`)."""

from __future__ import annotations

from typing import Any

from cluster_serving.launcher.terminal import printable
from cluster_serving.protocol.figures.comparison import Comparison
from cluster_serving.protocol.figures.stats import latency_of

_PARTS = {"p50": 0.5, "p99": 0.99}


def lines(found: Comparison) -> dict[str, str]:
    """Return a comparison in words, by topic."""
    percent = 100 * found.differing / max(found.compared, 1)
    told = {"compared": f"{found.compared} requests, and {found.differing} answers differ ({percent:.3g} %)"}
    if found.largest:
        told["compared"] += f"; two numbers by up to {found.largest:g}"
    if found.serving_failures or found.shadow_failures:
        told["failures"] = (
            f"{found.shadow_failures} requests failed in the shadow only, {found.serving_failures} only where served"
        )
    if found.given_up:
        told["given up"] = f"{found.given_up} requests, since the process of the shadow died of them"
    if found.skipped:
        told["skipped"] = f"{found.skipped} requests of its share were not compared"
    if found.compared:
        sides = (
            f"{side} half within {latency['p50']} ms, 99 % within {latency['p99']} ms"
            for side, latency in _latencies(found).items()
        )
        told["latency"] = f"of the same requests: {'; '.join(sides)}"
    for number, example in enumerate(found.examples, 1):
        serving, shadow = example["serving"], example["shadow"]
        told[f"example {number}"] = printable(
            f"{example['uri']}: {example['difference']} (serving: {serving} | shadow: {shadow})"
        )
    return told


def details(found: Comparison) -> dict[str, Any]:
    """Return a comparison, ready for JSON."""
    return {
        "compared": found.compared,
        "differing": found.differing,
        "serving_failures": found.serving_failures,
        "shadow_failures": found.shadow_failures,
        "given_up": found.given_up,
        "skipped": found.skipped,
        "largest_difference": found.largest,
        "latency_ms": _latencies(found),
        "examples": list(found.examples),
    }


def _latencies(found: Comparison) -> dict[str, dict[str, float | None]]:
    sides = {"serving": found.serving_ms, "shadow": found.shadow_ms}
    return {side: {name: latency_of(counts, part) for name, part in _PARTS.items()} for side, counts in sides.items()}
