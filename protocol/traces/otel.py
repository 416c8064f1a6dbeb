"""Spans for OpenTelemetry, built from time stamps in a thread beside the data path; the first tracer loads it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import chain, islice
from typing import Any

from cluster_serving.protocol.traces.trace import Span, Spans, TraceContext

_AT_ONCE = 512
_FLUSH_TIMEOUT = 2.0


class Tracer:
    """Samples traces, and sends their spans; sampler, limits and resource are those of the environment.

    Args:
        service: `service.name`, unless the environment has one.
        exporter: What gets the spans: a `SpanExporter`.
    """

    def __init__(self, service: str, exporter: Any) -> None:
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        resource = Resource.create()
        if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: service}))
        self._sampler = TracerProvider(resource=resource, shutdown_on_exit=False).sampler
        # Its bounded queue and its thread take any object that is sampled.
        builder: Any = _Builder(exporter, resource)
        self._processor: Any = BatchSpanProcessor(builder)

    def begin(self, parent: TraceContext | None, name: str) -> TraceContext | None:
        """Return a new span, of the trace of its parent or of a new one; None if it is not sampled."""
        from opentelemetry import trace

        span = TraceContext.new(parent)
        before = trace.set_span_in_context(trace.NonRecordingSpan(_context(parent))) if parent else None
        sampled: bool = self._sampler.should_sample(before, span.trace_id, name).decision.is_sampled()  # type: ignore[no-untyped-call]
        return span if sampled else None

    def put(self, spans: Spans) -> None:
        """Take sampled spans, which are built later; if too many wait, some are dropped."""
        self._processor.on_end(_Queued(spans))

    def flush(self) -> None:
        """Send what waits, unless it takes longer than 2 s."""
        # The processor itself waits for as long as its exporter tries again.
        thread = threading.Thread(target=self._processor.force_flush, name="traces", daemon=True)
        thread.start()
        thread.join(_FLUSH_TIMEOUT)


class _Queued:
    """Spans in the queue of the processor, which looks for `context.trace_flags.sampled`."""

    trace_flags = TraceContext(0, 0)

    def __init__(self, spans: Spans) -> None:
        self.spans = spans

    @property
    def context(self) -> _Queued:
        return self


class _Builder:
    """An exporter that builds spans, and passes them to another one."""

    def __init__(self, exporter: Any, resource: Any) -> None:
        self._exporter = exporter
        self._resource = resource

    def export(self, queued: Sequence[_Queued]) -> None:
        # A batch of requests has many, which would together take gigabytes.
        built = map(self._built, chain.from_iterable(each.spans() for each in queued))
        while part := list(islice(built, _AT_ONCE)):
            self._exporter.export(part)

    def _built(self, span: Span) -> Any:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        return ReadableSpan(
            span.name,
            _context(span.context),
            _context(span.parent) if span.parent else None,
            self._resource,
            {**span.attributes, **({"error.type": span.error} if span.error else {})},
            links=[trace.Link(_context(each)) for each in span.links],
            kind=trace.SpanKind[span.kind],
            status=trace.Status(trace.StatusCode.ERROR if span.error else trace.StatusCode.UNSET),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=InstrumentationScope("cluster_serving"),
        )


def _context(span: TraceContext) -> Any:
    from opentelemetry import trace

    return trace.SpanContext(span.trace_id, span.span_id, True, trace.TraceFlags(span.sampled))
