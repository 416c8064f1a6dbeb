"""Jobs of others in a Flink that several share, each with a Redis of their own."""

import pytest
import redis

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.job.options import JobOptions, ModelOptions
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import foreign_jobs
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.launcher.services.flink_rest import Job
from cluster_serving.launcher.targets.records import JobRecords
from cluster_serving.protocol.generations import CANARY, SERVING, Generation
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport
from tests.support.fixtures.redis_server import free_port


@pytest.fixture
def store(redis_server, job):
    with redis.Redis(port=redis_server.port, decode_responses=True) as client:
        yield JobStore(client, job)
        client.delete(*JobKeys(job).lasting())


def running(job, *submissions):
    return [Job(f"id-{each}", job, "RUNNING", 1.0, each) for each in submissions]


def test_a_job_that_redis_and_this_machine_do_not_know_is_left_alone(store, job, tmp_path):
    records = JobRecords(tmp_path)
    foreign_jobs.refuse(store, records, [], "stopped")
    with pytest.raises(LaunchError, match=f"job {job} was not stopped: Flink has a job of that name that neither"):
        foreign_jobs.refuse(store, records, running(job, "theirs"), "stopped")


def test_a_generation_or_the_report_of_a_slot_or_a_record_here_makes_a_job_known(store, job, tmp_path):
    records, keys = JobRecords(tmp_path), JobKeys(job)
    for role, submission in ((SERVING, "first"), (CANARY, "second")):
        store.client.hset(keys.generations, str(len(role)), Generation(len(role), role, submission).to_json())
        assert not foreign_jobs.are_foreign(store, records, running(job, submission))
    # A generation that a killed command has left does not make the job foreign.
    assert not foreign_jobs.are_foreign(store, records, running(job, "left", "first"))
    store.client.delete(keys.generations)
    assert foreign_jobs.are_foreign(store, records, running(job, "first"))
    store.client.hset(keys.slots(), "0", SlotReport("first", "ready").to_json())
    assert not foreign_jobs.are_foreign(store, records, running(job, "first"))
    store.client.delete(keys.slots())
    records.remember(JobOptions("first", ModelOptions("model"), RedisOptions("redis://", job)))
    assert not foreign_jobs.are_foreign(store, records, running(job, "first"))
    # A Redis that is gone tells nothing, and the records do.
    gone = JobStore(redis.Redis(port=free_port()), job)
    assert not foreign_jobs.are_foreign(gone, records, running(job, "first"))
    assert foreign_jobs.are_foreign(gone, records, running(job, "theirs"))
