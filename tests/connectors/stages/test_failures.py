"""The log of failed requests."""

import logging

import numpy as np
import pytest

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot import failures
from cluster_serving.connectors.slot.answer import Answer, AnsweredBatch
from cluster_serving.connectors.slot.redis import RedisClock
from cluster_serving.connectors.stages.failures import Failures
from cluster_serving.protocol import columns
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import DeadlineExceeded, InferenceFailed, InvalidInput, QueueFull, RequestCancelled
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.log_limit import LogLimit
from cluster_serving.protocol.results import encode_error, encode_result
from cluster_serving.protocol.traces.trace import TraceContext
from tests.support.fixtures import slots

OPTIONS = RedisOptions("", "digits", version="7")
FAILED = encode_error(InferenceFailed("'a secret' is no number"))


@pytest.fixture(autouse=True)
def _nothing_was_told(monkeypatch, caplog):
    monkeypatch.setattr(failures, "_limit", LogLimit(3))
    caplog.set_level(logging.INFO, failures.__name__)


@pytest.fixture
def stage(db):
    return Failures(db, OPTIONS, RedisClock(db), Counts(2))


def test_a_failed_request_has_a_line_without_what_it_holds(stage, caplog):
    trace = TraceContext(0xABC, 1)
    entries = Entry(b"1-0", "good", b""), Entry(b"2-0", "bad\n", b"", traceparent=str(trace).encode())
    stage.answered(AnsweredBatch([Answer(entries[0], {}), Answer(entries[1], FAILED)], 0, 0), 0)
    assert caplog.messages == [
        f"request failed: INFERENCE_FAILED job=digits version=7 slot=2 request=bad%0A trace={0xABC:032x}"
    ]


def test_an_entry_with_a_failed_record_has_one_line(stage, caplog):
    good, longer = (encode_result(True, ["y"], [np.zeros(size, "f4")]) for size in (1, 2))
    answers = [
        Answer(Entry(b"1-0", "many", b"", records=b"3"), columns.joined([good, FAILED, FAILED])),
        Answer(Entry(b"1-0", "ragged", b"", records=b"2"), columns.joined([good, longer])),
    ]
    stage.answered(AnsweredBatch(answers, 0, 0), 0)
    assert caplog.messages == ["request failed: INFERENCE_FAILED job=digits version=7 slot=2 request=many trace=-"]


def test_many_failures_are_counted_instead(stage, caplog):
    entry = Entry(b"1-0", "a", b"")
    stage.answered(AnsweredBatch([Answer(entry, FAILED)] * 1000, 0, 0), 0)
    assert len(caplog.messages) == 3


def test_a_request_that_is_refused_has_a_line_too(db, job, caplog):
    slot = slots.make(db, RedisOptions("", job))
    slot.refuse([(Entry(b"1-0", "late", b""), DeadlineExceeded("too late"))])
    assert caplog.messages == [f"request failed: DEADLINE_EXCEEDED job={job} version=1 slot=0 request=late trace=-"]


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (InvalidInput, logging.INFO),
        (RequestCancelled, logging.INFO),
        (QueueFull, logging.INFO),
        (DeadlineExceeded, logging.WARNING),
        (InferenceFailed, logging.WARNING),
    ],
)
def test_what_a_client_got_wrong_is_no_warning(error, level, caplog):
    failures.note(Entry(b"1-0", "a", b""), error.code, OPTIONS, 0)
    assert [record.levelno for record in caplog.records] == [level]
