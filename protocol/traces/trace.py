"""Traces: which one a request belongs to, as W3C Trace Context writes it, and the spans that it consists of."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")


class TraceContext(NamedTuple):
    """A span, as others refer to it.

    Attributes:
        trace_id: Number of the trace, of 128 bits.
        span_id: Number of the span, of 64 bits.
        sampled: True if the spans of the trace are kept.
    """

    trace_id: int
    span_id: int
    sampled: bool = True

    @classmethod
    def parse(cls, text: str) -> TraceContext | None:
        """Read a `traceparent`; return None if the text is not one."""
        found = _FORM.fullmatch(text)
        return cls(int(found[1], 16), int(found[2], 16), bool(int(found[3], 16) & 1)) if found else None

    @classmethod
    def new(cls, parent: TraceContext | None = None) -> TraceContext:
        """Return a new span, of the trace of its parent or of a new one."""
        # No secrets: they name a trace, and protect nothing.
        trace_id = parent.trace_id if parent else random.getrandbits(128) or 1
        return cls(trace_id, random.getrandbits(64) or 1)

    @property
    def trace(self) -> str:
        """Id of the trace, as tools show it."""
        return f"{self.trace_id:032x}"

    def __str__(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.sampled:02x}"


class Span(NamedTuple):
    """A span that has ended.

    Attributes:
        name: Its name.
        kind: Name of its kind in OpenTelemetry.
        context: Its numbers.
        parent: The span that it is a part of; None for the first of a trace.
        start_ns: Its begin, in nanoseconds since the epoch.
        end_ns: Its end.
        attributes: By the semantic conventions of OpenTelemetry.
        error: Code of its error; empty for none.
        links: Further spans that it continues.
    """

    name: str
    kind: str
    context: TraceContext
    parent: TraceContext | None
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any]
    error: str = ""
    links: Sequence[TraceContext] = ()


Spans = Callable[[], Sequence[Span]]
"""What builds spans later, in the thread that sends them."""


def messaging(operation: str, job: str) -> dict[str, Any]:
    """Return attributes of sending or processing requests of a job."""
    return {
        "messaging.system": "redis",
        "messaging.destination.name": job,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
