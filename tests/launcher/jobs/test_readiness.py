"""What the slots of a job say, as the launcher reads and ends it."""

import pytest
import redis

from cluster_serving.launcher.jobs.readiness import note_stopped, read_slots
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport, TensorSpec


@pytest.fixture
def client(redis_server, job):
    with redis.Redis(port=redis_server.port, decode_responses=True) as client:
        yield client
        client.delete(JobKeys(job).slots())


def test_the_slots_of_a_job_that_was_stopped_say_so_and_those_of_a_later_start_do_not(client, job):
    spec = TensorSpec("x", "float32", (None, 3))
    reports = [
        SlotReport("first", "ready", "Echo", (spec,), (spec,), index=0),
        SlotReport("first", "failed", code="MODEL_ERROR", error="no model", index=1),
        SlotReport("second", "ready", "Echo", index=2),
    ]
    for report in reports:
        client.hset(JobKeys(job).slots(), str(report.index), report.to_json())
    note_stopped(client, job, "first", keep_failures=True)
    assert [report.state for report in read_slots(client, job)] == ["stopped", "failed", "ready"]
    note_stopped(client, job, "first")
    after = read_slots(client, job)
    assert [report.state for report in after] == ["stopped", "stopped", "ready"]
    # What the model expects stays known, for those who queue requests until the next start.
    assert after[0].inputs == (spec,)


def test_a_job_that_has_said_nothing_leaves_nothing_behind(client, job):
    note_stopped(client, job, "first")
    assert not client.exists(JobKeys(job).slots())
