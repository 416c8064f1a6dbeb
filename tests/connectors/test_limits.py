"""What a job tells its clients, on a real Redis."""

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.reporting import publish_limits
from cluster_serving.protocol.keys import limits_key


def test_a_full_redis_takes_the_limits(db, job):
    """Only the job can make room again, so it has to start."""
    publish_limits(db, job, RedisOptions("", max_queue_length=5, payload_folder="/somewhere"))
    db.config_set("maxmemory", 1)
    try:
        publish_limits(db, job, RedisOptions("", result_ttl_s=7, max_queue_length=6))
    finally:
        db.config_set("maxmemory", 0)
    assert db.hgetall(limits_key(job)) == {b"resultTtl": b"7", b"maxQueueLength": b"6"}
    db.delete(limits_key(job))
