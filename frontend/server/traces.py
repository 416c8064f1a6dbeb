"""The spans of requests that a front end answers, and of those that it sends to jobs for them."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cluster_serving.client.sending import trace
from cluster_serving.frontend.caller import trace_id
from cluster_serving.frontend.server.http.call import OTHER
from cluster_serving.protocol.traces.trace import Span, TraceContext, messaging

if TYPE_CHECKING:
    from cluster_serving.protocol.traces.otel import Tracer

SERVICE = "cluster-serving-http"
"""`service.name` of the spans, unless the environment has one."""


class RequestSpan:
    """The span of a request to a front end, whose trace is sampled."""

    def __init__(self, tracer: Tracer, context: TraceContext, parent: TraceContext | None) -> None:
        self.context = context
        self._tracer = tracer
        self._parent = parent
        self._start_ns = time.time_ns()

    def send(self, job: str) -> _SendSpan:
        """Begin the span of sending a request to a job."""
        return _SendSpan(self._tracer, self.context, job)

    def end(self, name: str, error: str, attributes: Mapping[str, Any]) -> None:
        """End the span."""
        span = Span(name, "SERVER", self.context, self._parent, self._start_ns, time.time_ns(), attributes, error)
        self._tracer.put(lambda: (span,))

    def end_http(self, scope: Mapping[str, Any], status: int) -> None:
        """End the span of an HTTP request."""
        method, path = scope["method"], scope["path"]
        attributes = {"http.request.method": method, "url.path": path[:200], "http.response.status_code": status}
        self.end(f"{method}{_route(scope)}", str(status) if status >= 500 else "", attributes)

    def end_grpc(self, path: str, error: str) -> None:
        """End the span of a gRPC call; the error is the name of its status if the server is to blame, else empty."""
        self.end(path[1:], error, {"rpc.system": "grpc", "rpc.method": path[1:]})


class _SendSpan:
    def __init__(self, tracer: Tracer, parent: TraceContext, job: str) -> None:
        self._tracer, self._parent, self._job = tracer, parent, job
        self._context = TraceContext.new(parent)
        self._start_ns = time.time_ns()
        self.traceparent = str(self._context)

    def end(self, error: str = "") -> None:
        times = self._start_ns, time.time_ns()
        self._tracer.put(lambda: (self._span(*times, error),))

    def _span(self, start_ns: int, end_ns: int, error: str) -> Span:
        attributes = messaging("send", self._job)
        return Span(f"send {self._job}", "PRODUCER", self._context, self._parent, start_ns, end_ns, attributes, error)


def begin(tracer: Tracer, traceparent: str) -> RequestSpan | None:
    """Begin the span of the request that the current task answers; None if the request is not sampled."""
    parent = TraceContext.parse(traceparent)
    context = tracer.begin(parent, SERVICE)
    span = RequestSpan(tracer, context, parent) if context else None
    trace.sender.set(span.send if span else lambda _: None)
    trace_id.set(context.trace if context else "")
    return span


def _route(scope: Mapping[str, Any]) -> str:
    """Return the path with the names of its parameters, behind a space; empty for an unknown path."""
    route: str = scope["path"]
    for name, value in scope.get("path_params", {}).items():
        route = re.sub(rf"/{re.escape(str(value))}(?=[/:]|$)", f"/{{{name}}}", route, count=1)
    return "" if scope["call"].protocol == OTHER else f" {route}"
