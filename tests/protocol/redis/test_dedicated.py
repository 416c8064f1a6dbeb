"""Dedicated connections, on a real Redis."""

import pytest
import redis
from redis.exceptions import ResponseError

from cluster_serving.protocol.redis.dedicated import DedicatedConnection


@pytest.fixture
def connection(db):
    connection = DedicatedConnection(db)
    yield connection
    connection.close()


def test_replies_are_as_redis_sends_them(connection, job):
    assert connection.execute_command("HSET", job, "name", "value") == 1
    assert connection.execute_command("HGETALL", job) == [b"name", b"value"]


def test_an_error_of_a_command_keeps_the_connection(connection, db, job):
    identity = connection.execute_command("CLIENT", "ID")
    with pytest.raises(ResponseError):
        connection.execute_command("HSET", job)
    assert connection.execute_command("CLIENT", "ID") == identity


def test_replies_to_posted_commands_are_nobody_elses(connection, job):
    connection.post("SET", job, "posted")
    connection.post("HGET", job, "refused")
    assert connection.execute_command("GET", job) == b"posted"


def test_a_connection_that_redis_closed_during_a_pause_is_opened_again(connection, db, monkeypatch):
    connection.execute_command("PING")
    db.client_kill_filter(_id=connection.execute_command("CLIENT", "ID"))
    monkeypatch.setattr(connection, "_trusted_until", 1e-9)
    assert connection.execute_command("PING") == b"PONG"


def test_a_lost_connection_is_an_error_and_the_next_command_connects(redis_server):
    with redis.Redis(port=redis_server.port) as client:
        connection = DedicatedConnection(client)
        client.client_kill_filter(_id=connection.execute_command("CLIENT", "ID"))
        with pytest.raises(redis.ConnectionError):
            connection.execute_command("PING")
        assert connection.execute_command("PING") == b"PONG"
        connection.close()


def test_a_command_may_wait_in_redis_while_its_caller_looks_for_the_reply_now_and_then(connection, db, job):
    connection.begin("BLPOP", job, 60, limit=60)
    assert connection.end(0.01) is None
    assert connection.waits
    db.rpush(job, "pushed")
    assert connection.end(5) == [job.encode(), b"pushed"]
    assert not connection.waits
    assert connection.execute_command("PING") == b"PONG"


def test_an_error_of_a_command_that_waits_keeps_the_connection(connection, db, job):
    identity = connection.execute_command("CLIENT", "ID")
    db.set(job, "no list")
    connection.begin("BLPOP", job, 60, limit=60)
    with pytest.raises(ResponseError):
        connection.end(5)
    assert not connection.waits
    assert connection.execute_command("CLIENT", "ID") == identity


def test_a_connection_that_is_lost_while_a_command_waits_is_an_error(redis_server, job):
    with redis.Redis(port=redis_server.port) as client:
        connection = DedicatedConnection(client)
        identity = connection.execute_command("CLIENT", "ID")
        connection.begin("BLPOP", job, 60, limit=60)
        client.client_kill_filter(_id=identity)
        with pytest.raises(redis.ConnectionError):
            connection.end(5)
        assert not connection.waits
        assert connection.execute_command("PING") == b"PONG"
        connection.close()


def test_a_reply_that_does_not_come_in_time_is_an_error(connection, job, monkeypatch):
    connection.begin("BLPOP", job, 60, limit=60)
    monkeypatch.setattr(connection, "_late_at", 0.0)
    with pytest.raises(redis.TimeoutError):
        connection.end(0.01)
    assert connection.execute_command("PING") == b"PONG"


def test_a_forked_process_has_a_connection_of_its_own(connection):
    identity = connection.execute_command("CLIENT", "ID")
    # As after a fork: the connection was made in another process.
    connection._connection.pid = -1
    assert connection.execute_command("CLIENT", "ID") != identity


def test_an_interrupted_command_leaves_no_reply_to_the_next_one(connection, job, monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    connection.execute_command("SET", job, "earlier")
    with monkeypatch.context() as patch:
        patch.setattr(connection._connection, "read_response", interrupt)
        with pytest.raises(KeyboardInterrupt):
            connection.execute_command("GET", job)
    assert connection.execute_command("ECHO", "later") == b"later"
