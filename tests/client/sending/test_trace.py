"""The trace of a request that an application sends."""

import asyncio

import pytest
from opentelemetry import trace

from cluster_serving.client import AsyncInputQueue, InferenceFailed, InputQueue, ResultTimeout
from cluster_serving.protocol.traces.trace import TraceContext
from tests.support.fixtures.echo import Consumer


@pytest.fixture
def queue(redis_server, db, job):
    with InputQueue(url=redis_server.url, name=job) as queue:
        yield queue
    db.delete(job)


def within(sampled):
    """The span of an application, whose tracer is another library's affair."""
    context = trace.SpanContext(0xABC, 0xDEF, False, trace.TraceFlags(int(sampled)))
    return trace.use_span(trace.NonRecordingSpan(context))


def fields(db, job):
    """Fields of the only request in the queue."""
    ((_, fields),) = db.xrange(job)
    return fields


def test_a_request_belongs_to_the_active_span(queue, db, job):
    with within(sampled=True):
        queue.enqueue("a", {"x": 1})
    assert TraceContext.parse(fields(db, job)[b"traceparent"].decode()).trace_id == 0xABC


def test_a_request_that_is_not_sampled_has_no_field(queue, db, job):
    with within(sampled=False):
        queue.enqueue("a", {"x": 1})
    assert b"traceparent" not in fields(db, job)


def test_an_asyncio_request_belongs_to_the_active_span(redis_server, db, job):
    async def ask():
        async with AsyncInputQueue(url=redis_server.url, name=job) as queue:
            with within(sampled=True):
                waiting = asyncio.create_task(queue.predict({"x": 1}, timeout=60))
            while not db.xlen(job):
                await asyncio.sleep(0.01)
            sent = fields(db, job)
            waiting.cancel()
            return sent

    assert TraceContext.parse(asyncio.run(ask())[b"traceparent"].decode()).trace_id == 0xABC


def test_an_error_names_its_request(redis_server, queue, job):
    def refuse(entry):
        raise InferenceFailed(entry.uri)

    with Consumer(redis_server.url, job, refuse):
        with pytest.raises(InferenceFailed) as failed:
            queue.predict({"x": 1}, timeout=60)
        assert failed.value.uri == failed.value.message
        (result,) = queue.predict_many([{"x": 1}], timeout=60)
        assert result.error.uri == result.error.message
    with pytest.raises(ResultTimeout) as late:
        queue.predict({"x": 1}, timeout=0.1)
    assert late.value.uri
