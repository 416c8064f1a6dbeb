"""What the commands keep of a job in a real Redis."""

import pytest
import redis

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.job.options import JobOptions, ModelOptions
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.protocol.generations import CANDIDATE, RETIRING, SERVING, Generation
from cluster_serving.protocol.keys import GROUP, JobKeys
from cluster_serving.protocol.slots import SlotReport, TensorSpec


@pytest.fixture
def client(redis_server, job):
    with redis.Redis(port=redis_server.port, decode_responses=True) as client:
        yield client
        client.config_set("maxmemory", 0)
        client.delete(*JobKeys(job).lasting([1, 2]))


def test_the_slots_of_a_job_that_was_stopped_say_so_and_those_of_a_later_start_do_not(client, job):
    spec = TensorSpec("x", "float32", (None, 3))
    reports = [
        SlotReport("first", "ready", "Echo", (spec,), (spec,), index=0),
        SlotReport("first", "failed", code="MODEL_ERROR", error="no model", index=1),
        SlotReport("second", "ready", "Echo", index=2),
    ]
    for report in reports:
        client.hset(JobKeys(job).slots(), str(report.index), report.to_json())
    JobStore(client, job).note_stopped("first", keep_failures=True)
    assert [report.state for report in JobStore(client, job).slots()] == ["stopped", "failed", "ready"]
    JobStore(client, job).note_stopped("first")
    after = JobStore(client, job).slots()
    assert [report.state for report in after] == ["stopped", "stopped", "ready"]
    # What the model expects stays known, for those who queue requests until the next start.
    assert after[0].inputs == (spec,)


def test_a_start_does_not_begin_with_the_error_of_an_earlier_one(client, job):
    """The slots of a mended model would count as failed before they have loaded it."""
    spec = TensorSpec("x", "float32", (None, 3))
    failed = SlotReport("first", "failed", "Echo", (spec,), code="MODEL_ERROR", error="no model", restarts=3)
    client.hset(JobKeys(job).slots(), "0", failed.to_json())
    JobStore(client, job).announce("second", 2)
    reports = JobStore(client, job).slots()
    assert [(report.state, report.has_failed, report.restarts) for report in reports] == [("loading", False, 0)] * 2
    assert reports[0].inputs == (spec,)


def test_a_job_that_has_said_nothing_leaves_nothing_behind(client, job):
    JobStore(client, job).note_stopped("first")
    assert not client.exists(JobKeys(job).slots())


def test_a_start_takes_over_what_a_slot_got_after_its_generation_had_ended(client, job):
    """A process that is killed while its read waits in Redis may still get the next request."""
    store, keys = JobStore(client, job), JobKeys(job)
    client.xgroup_create(job, GROUP, mkstream=True)
    store.begin(Generation(1, SERVING))
    store.end(1)
    entry = client.xadd(job, {"uri": "a"})
    client.xreadgroup(GROUP, f"{keys.consumers(1)}0", {job: ">"})
    store.begin(Generation(2, SERVING))
    assert [(each["message_id"], each["consumer"]) for each in client.xpending_range(job, GROUP, "-", "+", 9)] == [
        (entry, keys.orphans)
    ]


def test_a_full_redis_takes_a_change(client, job):
    client.xgroup_create(job, GROUP, mkstream=True)
    client.xadd(job, {"uri": "a"})
    client.xreadgroup(GROUP, "0", {job: ">"})
    client.config_set("maxmemory", 1)
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        client.set("any", "thing")
    store = JobStore(client, job)
    first, second = Generation(1, SERVING), Generation(2, SERVING)
    store.begin(first)
    assert store.next_number() == 2
    store.put(Generation(2, CANDIDATE))
    store.switch(second, Generation(1, RETIRING))
    now = store.generations()
    assert (now.serving, now.all[1].role) == (second, RETIRING)
    store.hand_over(1, 2)
    store.end(1)
    assert store.generations().all == {2: second}


def test_a_start_that_failed_leaves_no_gap_in_the_versions(client, job):
    store = JobStore(client, job)
    assert (store.next_number(), store.next_version(1)) == (1, 1)
    # The first start fails.
    assert (store.next_number(), store.next_version(2)) == (2, 1)
    store.count_version(_options(2, "1"))
    assert (store.next_number(), store.next_version(3)) == (3, 2)
    # A generation that starts again as it was before has its version.
    store.count_version(_options(3, "1"))
    assert store.next_version(4) == 2
    store.count_version(_options(4, "2021", numbered=True))
    assert store.next_version(5) == 2


def test_versions_of_a_job_that_an_older_version_started_go_on_with_the_numbers(client, job):
    store = JobStore(client, job)
    store.put(Generation(3, SERVING, version="3"))
    assert store.next_number() == 4
    assert store.next_version(4) == 4
    store.count_version(_options(4, "4"))
    assert store.next_number() == 5
    assert store.next_version(5) == 5


def _options(generation, version, numbered=False):
    redis = RedisOptions("redis://localhost", "any", generation=generation, version=version, numbered=numbered)
    return JobOptions("start", ModelOptions("model"), redis)
