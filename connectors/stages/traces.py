"""Traces: the spans of sampled requests, built from the times of their batches in a thread beside the data path."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import redis

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.answer import Answer, AnsweredBatch
from cluster_serving.connectors.slot.redis import RedisClock
from cluster_serving.connectors.slot.stage import AnswerStage
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.keys import GROUP, JobKeys
from cluster_serving.protocol.traces.trace import Span, TraceContext, messaging
from cluster_serving.protocol.traces.tracing import tracer

if TYPE_CHECKING:
    from cluster_serving.protocol.traces.otel import Tracer

_MOST_LINKS = 32
_MOST_REQUESTS = 64
"""Most requests of a batch with spans, so that the batches that wait take little memory."""


class Traces(AnswerStage):
    """Notes the batches that have sampled requests."""

    def __init__(self, tracer: Tracer, options: RedisOptions, clock: RedisClock, slot: int) -> None:
        self._tracer = tracer
        self._options = options
        self._clock = clock
        self._slot = slot

    def answered(self, batch: AnsweredBatch, write_us: int) -> None:
        """Note a batch."""
        traced = [answer for answer in batch.answers if answer.entry.traceparent][:_MOST_REQUESTS]
        if not traced:
            return
        computed_us, now = batch.inference_us + write_us, self._clock.now_ms()
        began_ms = None if now is None else now - computed_us / 1000
        inference_us = max(0, batch.inference_us - batch.preprocess_us - batch.postprocess_us)
        steps = batch.preprocess_us, inference_us, batch.postprocess_us, write_us
        size = sum(answer.entry.record_count for answer in batch.answers)
        requests = [_Request.of(answer, began_ms) for answer in traced]
        self._tracer.put(_Batch(requests, size, time.time_ns(), steps, self._options, self._slot).spans)

    def close(self) -> None:
        """Send the spans."""
        self._tracer.flush()


def answers(client: redis.Redis, options: RedisOptions, clock: RedisClock, counts: Counts) -> AnswerStage:
    """Return the stage of a sink; one that does nothing where the environment wants no traces."""
    found = tracer("cluster-serving-job")
    return Traces(found, options, clock, counts.slot) if found else AnswerStage(client, options, clock, counts)


class _Request(NamedTuple):
    """What a span needs of a request, which is less than its inputs and outputs."""

    traceparent: bytes
    id: bytes
    uri: str
    code: str
    wait_ms: float | None

    @classmethod
    def of(cls, answer: Answer, began_ms: float | None) -> _Request:
        entry, codes = answer.entry, answer.codes
        wait_ms = None if began_ms is None else max(0.0, began_ms - entry.queued_ms)
        return cls(entry.traceparent, entry.id, entry.shown_uri, codes[0] if codes else "", wait_ms)


@dataclass(frozen=True)
class _Batch:
    requests: Sequence[_Request]
    size: int
    end_ns: int
    steps_us: tuple[int, int, int, int]
    options: RedisOptions
    slot: int

    def spans(self) -> list[Span]:
        """Return the spans of the batch, in each trace of its requests, to which the first of each trace has links."""
        parsed = [(TraceContext.parse(each.traceparent.decode("latin1")), each) for each in self.requests]
        sampled = [(parent, request) for parent, request in parsed if parent and parent.sampled]
        links = [parent for parent, _ in sampled[:_MOST_LINKS]]
        first = {parent.trace_id: (parent, request) for parent, request in reversed(sampled)}
        return [span for parent, request in first.values() for span in self._in_trace(parent, request, links)]

    def _in_trace(self, parent: TraceContext, request: _Request, links: Sequence[TraceContext]) -> list[Span]:
        job, start = self.options.job, self.end_ns - 1000 * sum(self.steps_us)
        context = TraceContext.new(parent)
        attributes = {
            **messaging("process", job),
            "messaging.batch.message_count": self.size,
            "messaging.message.id": request.id.decode(),
            "messaging.consumer.group.name": GROUP,
            "messaging.client.id": JobKeys(job).consumer(self.options.generation, self.slot),
            "cluster_serving.request": request.uri,
            "cluster_serving.version": self.options.version,
            "cluster_serving.slot": self.slot,
            **({} if request.wait_ms is None else {"cluster_serving.queue_wait_ms": request.wait_ms}),
        }
        spans = [
            Span(f"process {job}", "CONSUMER", context, parent, start, self.end_ns, attributes, request.code, links)
        ]
        for name, step_us in zip(("preprocess", "inference", "postprocess", "write"), self.steps_us, strict=True):
            end = start + 1000 * step_us
            if step_us:
                spans.append(Span(name, "INTERNAL", TraceContext.new(parent), context, start, end, {}))
            start = end
        return spans
