"""Results of comparing the answers of a shadow with those of the generation that serves (`protocol.figures.tally`).

They are in the hash `<jobName>:shadow:<generation>:compared`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from cluster_serving.protocol.figures.stats import LATENCY_BOUNDS_MS

MOST_EXAMPLES = 5
"""Most differences whose answers are kept."""

COUNTS = ("compared", "differing", "serving_failures", "shadow_failures", "skipped")
"""Counters of the hash."""


@dataclass(frozen=True)
class Comparison:
    """Results of the comparison of a shadow.

    Attributes:
        compared: Number of requests that both have answered.
        differing: Number of those whose answers differ, also if only one is an error.
        serving_failures: Number of those that failed, or had records that failed, only where they were served.
        shadow_failures: Number of those that did so only in the shadow.
        given_up: Number of copies that are dead letters, since the process of the shadow died of them; not compared.
        skipped: Number of requests of the share that were not compared, since the shadow or Redis was too slow or full.
        largest: Largest difference between two numbers.
        serving_ms: Compared requests by their latency where they were served, as `JobStats.latency_ms`.
        shadow_ms: Compared requests by the latency of their copies.
        examples: Some requests whose answers differ: uri, difference, and both answers in short.
    """

    compared: int
    differing: int
    serving_failures: int
    shadow_failures: int
    given_up: int
    skipped: int
    largest: float
    serving_ms: tuple[int, ...]
    shadow_ms: tuple[int, ...]
    examples: tuple[dict[str, str], ...]

    @classmethod
    def read(cls, fields: Mapping[str, str], given_up: int = 0) -> Comparison:
        """Read the hash, as text; a missing hash has compared nothing. It lacks the number of dead letters."""

        def latency(side: str) -> tuple[int, ...]:
            return tuple(int(fields.get(f"{side}_ms:{limit}", 0)) for limit in (*LATENCY_BOUNDS_MS, "inf"))

        examples = [fields.get(f"example:{number}") for number in range(1, MOST_EXAMPLES + 1)]
        return cls(
            **{name: int(fields.get(name, 0)) for name in COUNTS},
            given_up=given_up,
            largest=float(fields.get("largest", 0)),
            serving_ms=latency("serving"),
            shadow_ms=latency("shadow"),
            examples=tuple(json.loads(example) for example in examples if example),
        )
