"""Clock of Redis, on a real Redis."""

import time

import redis

from cluster_serving.connectors.slot.redis import RedisClock


def redis_ms(db):
    seconds, microseconds = db.time()
    return seconds * 1000 + microseconds / 1000


def test_the_clock_agrees_with_redis_and_is_never_ahead(db):
    clock = RedisClock(db)
    for _ in range(20):
        now = clock.now_ms()
        assert redis_ms(db) - 1000 < now <= redis_ms(db) + 0.01


def test_redis_is_asked_once_in_a_while(db):
    db.config_resetstat()
    clock = RedisClock(db)
    for _ in range(100):
        clock.now_ms()
    assert db.info("commandstats")["cmdstat_time"]["calls"] == 1
    often = RedisClock(db, refresh_s=0)
    for _ in range(10):
        often.now_ms()
    assert db.info("commandstats")["cmdstat_time"]["calls"] == 11


def test_without_redis_the_time_is_unknown_at_first_and_then_goes_on(redis_server):
    assert RedisClock(redis.Redis(port=1)).now_ms() is None
    with redis.Redis(port=redis_server.port) as client:
        clock = RedisClock(client, refresh_s=0)
        before = clock.now_ms()
        redis_server.stop()
        try:
            time.sleep(0.01)
            assert clock.now_ms() > before
        finally:
            redis_server.start()
