"""What slots report, on a real Redis."""

import threading

import redis

from cluster_serving.connectors.reporting import SlotReporter
from cluster_serving.protocol.keys import JOBS_KEY, slots_key
from cluster_serving.protocol.slots import SlotReport, read_reports
from tests.support.redis_server import RedisServer


def test_a_full_redis_takes_reports(db, job):
    reporter = SlotReporter(db, job, "start-1", 3)
    db.config_set("maxmemory", 1)
    try:
        reporter.loading()
        reporter.ready(SlotReport("", "", engine="test"))
    finally:
        db.config_set("maxmemory", 0)
    (report,) = read_reports(db.hgetall(slots_key(job)))
    assert (report.index, report.submission, report.state, report.engine) == (3, "start-1", "ready", "test")
    assert db.sismember(JOBS_KEY, job)
    db.delete(slots_key(job))


def test_a_report_waits_for_redis(tmp_path_factory, job):
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.stop()
    with redis.Redis(port=server.port) as client:
        reporting = threading.Thread(target=SlotReporter(client, job, "start-1", 0).loading)
        reporting.start()
        server.start()
        reporting.join(30)
        (report,) = read_reports(client.hgetall(slots_key(job)))
    server.stop()
    assert report.state == "loading"
