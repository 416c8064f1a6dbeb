"""The spans of sending requests: of a front end, or of an application that uses OpenTelemetry.

Nothing of OpenTelemetry is imported here: an application that uses it has done so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Optional, Protocol

from cluster_serving.protocol.traces.trace import TraceContext, messaging


class Sending(Protocol):
    """A span of sending a request; `traceparent` is for its stream entry."""

    traceparent: str

    def end(self, error: str = "") -> None:
        """End the span, with the code of an error if the request was not queued."""


Begin = Callable[[str], Optional[Sending]]

sender: ContextVar[Begin] = ContextVar("sender")
"""What begins such a span for a job, where the process traces by itself; it returns None if none is sampled."""


def begin(job: str) -> Sending | None:
    """Begin the span of sending a request to a job; return None if there is no trace, or it is not sampled."""
    return sender.get(_in_application)(job)


def _in_application(job: str) -> Sending | None:
    """Begin a span of the application, below the one that is active."""
    api: Any = sys.modules.get("opentelemetry.trace")
    # Another thread may be importing it.
    get_tracer = getattr(api, "get_tracer", None)
    if get_tracer is None:
        return None
    span = get_tracer("cluster_serving").start_span(
        f"send {job}", kind=api.SpanKind.PRODUCER, attributes=messaging("send", job)
    )
    context = span.get_span_context()
    if not context.is_valid:
        # An application without a tracer may pass a trace on; not all versions give its span to a new one then.
        context = api.get_current_span().get_span_context()
    return _ApplicationSpan(api, span, context) if context.trace_flags.sampled else None


class _ApplicationSpan:
    def __init__(self, api: Any, span: Any, context: Any) -> None:
        self._api, self._span = api, span
        self.traceparent = str(TraceContext(context.trace_id, context.span_id))

    def end(self, error: str = "") -> None:
        if error:
            self._span.set_attribute("error.type", error)
            self._span.set_status(self._api.StatusCode.ERROR)
        self._span.end()
