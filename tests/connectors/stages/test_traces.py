"""Spans of the requests of a batch."""

import pytest

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.answer import Answer, AnsweredBatch
from cluster_serving.connectors.slot.redis import RedisClock
from cluster_serving.connectors.slot.stage import AnswerStage
from cluster_serving.connectors.stages import traces
from cluster_serving.connectors.stages.traces import Traces
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.traces import tracing
from cluster_serving.protocol.traces.trace import TraceContext

OPTIONS = RedisOptions("", "job", generation=3, version="7")


class Noting:
    """A tracer that keeps the spans."""

    def __init__(self):
        self.spans = []

    def put(self, spans):
        self.spans += spans()

    def flush(self):
        pass


@pytest.fixture
def tracer():
    return Noting()


@pytest.fixture
def stage(tracer, db):
    return Traces(tracer, OPTIONS, RedisClock(db), slot=1)


def answer(number, parent=None, **fields):
    now = f"{number}-0".encode()
    return Answer(Entry(now, f"uri {number}", b"x" * 1000, traceparent=str(parent).encode() if parent else b""), fields)


def batch(*answers):
    return AnsweredBatch(answers, 0, 10_000, 1000, 2000)


def named(spans, name):
    return [span for span in spans if span.name == name]


def test_a_batch_without_a_sampled_request_leaves_nothing(stage, tracer):
    stage.answered(batch(answer(1), answer(2)), 500)
    assert tracer.spans == []


def test_a_batch_has_a_span_in_each_trace_with_links_to_its_requests(stage, tracer):
    one, two, other = TraceContext(1, 11), TraceContext(1, 12), TraceContext(2, 21)
    stage.answered(batch(answer(1, one), answer(2), answer(3, two), answer(4, other)), 500)
    first, second = sorted(named(tracer.spans, "process job"), key=lambda span: span.context.trace_id)
    assert (first.parent, second.parent) == (one, other)
    for span in (first, second):
        assert span.links == [one, two, other]
        assert span.attributes["messaging.batch.message_count"] == 4
        assert span.attributes["messaging.client.id"] == "job-3-1"
        steps = [each for each in tracer.spans if each.parent == span.context]
        assert [each.name for each in steps] == ["preprocess", "inference", "postprocess", "write"]
        assert [each.end_ns - each.start_ns for each in steps] == [1_000_000, 7_000_000, 2_000_000, 500_000]
        assert (steps[0].start_ns, steps[-1].end_ns) == (span.start_ns, span.end_ns)


def test_few_requests_of_a_batch_have_spans(stage, tracer):
    stage.answered(batch(*(answer(number, TraceContext(number, 1)) for number in range(1, 1000))), 0)
    assert len(named(tracer.spans, "process job")) == 64


def test_a_failed_request_has_its_code_and_no_content(stage, tracer):
    stage.answered(batch(answer(1, TraceContext(1, 11), code="INFERENCE_FAILED", error="secret")), 500)
    (span,) = named(tracer.spans, "process job")
    assert span.error == "INFERENCE_FAILED"
    assert "secret" not in repr(tracer.spans)
    assert span.attributes["cluster_serving.request"] == "uri%201"


def test_what_is_no_trace_is_ignored(stage, tracer):
    forged = Entry(b"1-0", "a", b"", traceparent=b"\xff" * 55)
    stage.answered(batch(Answer(forged, {}), answer(2, TraceContext(1, 11, sampled=False))), 0)
    assert tracer.spans == []


def test_a_sink_has_no_such_stage_without_traces(db, monkeypatch):
    monkeypatch.delenv("OTEL_TRACES_EXPORTER", raising=False)
    tracing.tracer.cache_clear()
    assert type(traces.answers(db, OPTIONS, RedisClock(db), Counts())) is AnswerStage
