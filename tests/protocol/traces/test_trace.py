"""Traces of requests, as W3C Trace Context and OpenTelemetry have them."""

import logging
import os
import subprocess
import sys

import numpy as np
import pytest

from cluster_serving.protocol.entry import parse_entry, request_fields
from cluster_serving.protocol.traces import otel, tracing
from cluster_serving.protocol.traces.trace import Span, TraceContext
from tests.support.fixtures.collector import Collector
from tests.support.fixtures.waiting import wait_until

INPUTS = {"x": np.zeros(3, "f4")}
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def environment(monkeypatch):
    """Sets the variables of OpenTelemetry; each tracer is new."""

    def be(**variables):
        for name in [name for name in os.environ if name.startswith("OTEL_")]:
            monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        tracing.tracer.cache_clear()

    yield be
    tracing.tracer.cache_clear()


@pytest.fixture
def collector():
    collector = Collector()
    yield collector
    collector.stop()


@pytest.mark.parametrize(("flags", "sampled"), [("01", True), ("00", False), ("03", True)])
def test_a_traceparent_is_read_and_written(flags, sampled):
    context = TraceContext.parse(f"00-{TRACE}-{SPAN}-{flags}")
    assert context == (int(TRACE, 16), int(SPAN, 16), sampled)
    assert str(context) == f"00-{TRACE}-{SPAN}-0{int(sampled)}"
    assert context.trace == TRACE


def test_a_later_version_may_append_to_it():
    assert TraceContext.parse(f"cc-{TRACE}-{SPAN}-01-more").trace == TRACE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_what_is_no_traceparent_is_ignored(text):
    assert TraceContext.parse(text) is None


def test_an_entry_has_the_field_only_if_its_trace_is_sampled():
    assert "traceparent" not in request_fields("a", INPUTS)
    sent = request_fields("a", INPUTS, traceparent=f"00-{TRACE}-{SPAN}-01")
    raw = {name.encode(): value if isinstance(value, bytes) else value.encode() for name, value in sent.items()}
    entry = parse_entry(b"1-0", raw)
    assert TraceContext.parse(entry.traceparent.decode()).trace == TRACE
    # What a stranger sends takes no memory.
    assert len(parse_entry(b"1-0", {**raw, b"traceparent": b"x" * 10_000}).traceparent) == 55


def test_a_uri_is_escaped_where_people_read_it():
    entry = parse_entry(b"1-0", {b"uri": b'a"\n job=b \xff' + b"c" * 1000})
    assert entry.shown_uri.startswith("a%22%0A%20job=b%20") and len(entry.shown_uri) < 700


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
        {"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"},
    ],
)
def test_there_is_no_tracer_unless_the_environment_wants_one(environment, variables):
    environment(**variables)
    assert tracing.tracer("service") is None


def test_a_missing_exporter_is_told_once_and_costs_no_request(environment, caplog):
    environment(OTEL_TRACES_EXPORTER="zipkin")
    caplog.set_level(logging.ERROR)
    assert tracing.tracer("service") is tracing.tracer("service") is None
    (message,) = caplog.messages
    assert "zipkin" in message and "pip install 'cluster-serving[traces]'" in message


def test_nothing_of_opentelemetry_is_imported_without_it():
    program = """
import sys
from cluster_serving.client import AsyncInputQueue, InputQueue
from cluster_serving.client.sending.trace import begin
from cluster_serving.frontend import app
from cluster_serving.job import operators, topology
from cluster_serving.protocol.traces.tracing import tracer
assert tracer("service") is None and begin("job") is None
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("sampler", "parent", "sampled"),
    [
        ("parentbased_always_on", None, True),
        ("parentbased_always_off", None, False),
        ("parentbased_always_off", True, True),
        ("parentbased_always_on", False, False),
        ("always_off", True, False),
    ],
)
def test_the_environment_has_the_sampler(environment, collector, sampler, parent, sampled):
    environment(**collector.variables, OTEL_TRACES_SAMPLER=sampler)
    above = None if parent is None else TraceContext(7, 8, parent)
    span = tracing.tracer("service").begin(above, "request")
    assert (span is not None) is sampled
    if span and above:
        assert span.trace_id == above.trace_id and span.span_id != above.span_id


def test_spans_are_sent_with_what_they_say(environment, collector):
    environment(**collector.variables, OTEL_RESOURCE_ATTRIBUTES="deployment.environment=test")
    tracer, context, parent = tracing.tracer("service"), TraceContext(1, 2), TraceContext(1, 3)
    many = [Span("many", "INTERNAL", TraceContext(9, n + 1), None, 0, 1, {}) for n in range(1000)]
    tracer.put(lambda: [Span("one", "CONSUMER", context, parent, 5, 9, {"size": 3}, "INTERNAL", [parent])])
    tracer.put(lambda: many)
    tracer.flush()
    wait_until(lambda: len(collector.spans) == 1001)
    (span,) = collector.of(f"{1:032x}")
    assert (span.service, span.name, span.kind, span.start, span.end) == ("service", "one", "CONSUMER", 5, 9)
    assert (span.id, span.parent, span.links) == (f"{2:016x}", f"{3:016x}", ((f"{1:032x}", f"{3:016x}"),))
    assert span.failed and span.attributes == {"size": 3, "error.type": "INTERNAL"}


def test_spans_are_built_as_they_are_sent():
    sent = []

    class Exporter:
        def export(self, spans):
            sent.append(len(spans))

    def spans():
        sent.append("built")
        return [Span("many", "INTERNAL", TraceContext.new(), None, 0, 1, {})] * 600

    tracer = otel.Tracer("service", Exporter())
    for _ in range(3):
        tracer.put(spans)
    tracer.flush()
    assert sent == ["built", 512, "built", 512, "built", 512, 264]


def test_a_collector_that_is_away_keeps_no_process_from_its_end(environment):
    environment(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1", OTEL_TRACES_EXPORTER="otlp")
    tracer = tracing.tracer("service")
    tracer.put(lambda: [Span("lost", "INTERNAL", TraceContext.new(), None, 0, 1, {})])
    tracer.flush()
