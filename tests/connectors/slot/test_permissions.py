"""Rights that a slot needs, on a real Redis."""

import re

import pytest
import redis

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot import permissions, rights
from cluster_serving.connectors.slot.reporting import SlotReporter
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.protocol.errors import RedisUnavailable
from cluster_serving.protocol.keys import JOBS_KEY, JobKeys
from cluster_serving.protocol.slots import SlotReport, read_reports
from tests.support.fixtures.waiting import wait_until

COMMANDS = ["xreadgroup", "xpending", "xclaim", "xack", "xdel", "xlen", "xinfo", "xgroup"]
COMMANDS += ["expire", "incrby", "publish"]


@pytest.fixture
def user(redis_server, db):
    """A client of a user; `right` gives and takes its rights."""
    db.execute_command("ACL", "SETUSER", "slot", "reset", "on", "nopass", "~*", "&*", "+@all")
    with redis.Redis.from_url(f"redis://slot:any@localhost:{redis_server.port}") as client:
        yield client
    db.execute_command("ACL", "DELUSER", "slot")


def right(db, text):
    db.execute_command("ACL", "SETUSER", "slot", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_right_is_named(user, db, job, command):
    rights.check(user, job)
    right(db, f"-{command}")
    with pytest.raises(RedisUnavailable, match=f"refuses a command that the job needs: .*{command}.*Users of Redis"):
        rights.check(user, job)


@pytest.mark.parametrize("command", ["hget", "hgetall", "hdel", "hset", "time"])
def test_a_right_that_the_first_report_lacks_is_named_and_not_waited_for(user, db, job, command):
    reporter = SlotReporter(user, RedisOptions("", job), "start", 0)
    right(db, f"-{command}")
    with pytest.raises(RedisUnavailable, match=f"refuses a command that the job needs: .*{command}.*Users of Redis"):
        reporter.loading()
    db.delete(JobKeys(job).slots(), JobKeys(job).slots(1), JobKeys(job).generations)


def test_the_check_changes_nothing(db, job):
    for stream in JobKeys(job).streams:
        db.xgroup_create(stream, "cluster_serving_group", mkstream=True)
    before = {stream: db.xinfo_groups(stream) for stream in JobKeys(job).streams}
    rights.check(db, job)
    assert {stream: db.xinfo_groups(stream) for stream in JobKeys(job).streams} == before


def test_a_redis_that_takes_no_writes_now_is_no_missing_right(db, job):
    db.config_set("min-replicas-to-write", 1)
    try:
        rights.check(db, job)
    finally:
        db.config_set("min-replicas-to-write", 0)


def test_a_renamed_command_is_such_a_refusal(db):
    error = redis.ResponseError("unknown command `XREADGROUP`, with args beginning with: ")
    assert re.search("XREADGROUP", str(permissions.refusal(db, error)))
    assert permissions.refusal(db, redis.ConnectionError("lost")) is None


def test_a_key_of_another_program_is_such_a_refusal(db, job):
    db.set(job, "5")
    with pytest.raises(redis.ResponseError) as refused:
        db.xlen(job)
    assert "another program has a key of the job's name" in str(permissions.refusal(db, refused.value))


def test_a_slot_that_may_not_read_any_more_is_reported_until_it_may(db, job, monkeypatch):
    monkeypatch.setattr("cluster_serving.connectors.slot.reporting.HEARTBEAT_S", 0.05)
    options = RedisOptions("", job)
    reporter = SlotReporter(db, options, "first", 0)
    shared = SharedSlot.of(options.name, 0).ticks
    reporter.loading()

    def report():
        return read_reports(db.hgetall(JobKeys(job).slots()))[0]

    reporter.ready(SlotReport("", "", "Echo"))
    shared.problem = "XREADGROUP is refused"
    wait_until(lambda: report().state == "failed")
    assert (report().code, report().error, report().engine) == ("REDIS_UNAVAILABLE", shared.problem, "Echo")
    shared.problem = ""
    wait_until(lambda: report().state == "ready")
    assert report().error is None
    reporter.close()
    db.srem(JOBS_KEY, job)
    db.delete(JobKeys(job).slots(), JobKeys(job).generations)
