"""The synchronous client, on a real Redis with an echoing consumer."""

import asyncio
import base64
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cluster_serving.client import (
    AsyncInputQueue,
    AsyncOutputQueue,
    DeadlineExceeded,
    InputQueue,
    InvalidInput,
    OutputQueue,
    QueueFull,
    RedisUnavailable,
    RequestLost,
    ResultTimeout,
    ServingError,
    announcements,
)
from cluster_serving.protocol.entry import parse_entry
from cluster_serving.protocol.keys import GROUP, JobKeys
from cluster_serving.protocol.results import encode_error
from tests.support.fixtures.redis_server import free_port, on_each_server
from tests.support.fixtures.waiting import wait_until


@pytest.fixture
def queues(redis_server, job):
    with (
        InputQueue(host="127.0.0.1", port=str(redis_server.port), name=job) as requests,
        OutputQueue(url=redis_server.url, name=job) as results,
    ):
        yield requests, results


def test_constructor_arguments_are_the_originals(redis_server):
    with InputQueue("127.0.0.1", redis_server.port, "other") as queue:
        assert (queue.host, queue.port, queue.name) == ("127.0.0.1", str(redis_server.port), "other")
    with OutputQueue() as queue:
        assert (queue.host, queue.port, queue.name) == ("localhost", "6379", "serving_stream")


@pytest.mark.parametrize("queue", [InputQueue, AsyncInputQueue])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"frontend_url": "http://h:1"}, "'http://h:1' is not a host: this client connects to Redis"),
        ({"host": "http://h:1"}, "'http://h:1' is not a host"),
        ({"sync": True}, "there is no sync="),
        ({"prot": 1}, "there is no option 'prot'; is it 'port'"),
        ({"url": "redis://h", "ssl": True}, "ssl=True goes with host and port; the url .* begins with rediss://"),
        ({"decode_responses": True}, "'decode_responses' of redis-py cannot be used here: results are bytes"),
        ({"unix_socket_path": "/s"}, "cannot be used here: pass url='unix:///path/of/the/socket'"),
        ({"ssl_ca_certs": "ca.pem"}, "'ssl_ca_certs' needs ssl=True, or a url of rediss://"),
        ({"url": "redis://:k9/z7@h:1"}, "^(?!.*(k9|z7))the url is not an address of Redis; expected redis://"),
        ({"url": "http://h:1"}, "the url is not an address of Redis"),
        ({"port": "redis"}, "port is 'redis'; expected a number"),
        ({"pasword": "x", "url": "redis://h:1"}, "there is no option 'pasword'; is it 'password'"),
    ],
)
def test_what_only_the_original_takes_is_named(queue, arguments, message):
    with pytest.raises(InvalidInput, match=message):
        queue(**arguments)


def test_an_option_that_asyncio_lacks_is_named():
    with pytest.raises(InvalidInput, match="asyncio clients, and predict_many, have no option 'ssl_ca_path'"):
        AsyncInputQueue(ssl=True, ssl_ca_path="/certificates")
    with (
        InputQueue(ssl=True, ssl_ca_path="/certificates") as queue,
        pytest.raises(InvalidInput, match="predict_many, have no option 'ssl_ca_path'"),
    ):
        next(queue.predict_many([{"x": [1.0]}]))
    wait_until(lambda: "predict_many" not in {thread.name for thread in threading.enumerate()})


@pytest.mark.usefixtures("echo")
def test_enqueue_query_and_delete(queues, db, job):
    requests, results = queues
    assert requests.enqueue("my:request", x=np.arange(3), y=["a", "b"]) == "my:request"
    result = results.query("my:request", timeout=10)
    numbers, texts = result["x"], result["y"]
    assert (numbers.tolist(), texts.tolist()) == ([0, 1, 2], ["a", "b"])
    assert results.query("my:request") is not None
    assert results.query_and_delete("my:request") is not None
    assert results.query("my:request") is None
    assert not db.exists(JobKeys(job).native_result("my:request"))


@pytest.mark.usefixtures("echo")
def test_a_waiting_query_is_woken_not_polling(queues, db):
    requests, results = queues
    waiter = ThreadPoolExecutor(1).submit(results.query, "later", timeout=30)
    time.sleep(0.3)
    calls = db.info("commandstats").get("cmdstat_hgetall", {}).get("calls", 0)
    time.sleep(0.5)
    assert db.info("commandstats")["cmdstat_hgetall"]["calls"] == calls
    requests.enqueue("later", x=np.ones(2))
    assert waiter.result(10).tolist() == [1, 1]


@pytest.mark.usefixtures("echo")
def test_dequeue_takes_everything_and_keeps_whole_uris_and_errors(queues, db, job):
    requests, results = queues
    for uri in ("a", "a:b", "ü/%20"):
        requests.enqueue(uri, x=np.zeros(1))
    db.xadd(job, {"uri": "broken", "data": b"not base64!"})
    for uri in ("a", "a:b", "ü/%20"):
        results.query(uri, timeout=10)
    with pytest.raises(InvalidInput, match="not base64"):
        results.query("broken", timeout=10)
    taken = results.dequeue()
    assert set(taken) == {"a", "a:b", "ü/%20", "broken"}
    assert isinstance(taken["broken"].error, InvalidInput)
    assert results.dequeue() == {}


@pytest.mark.usefixtures("echo")
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"x": np.array([1.5])}, [1.5]),
        (json.dumps({"instances": [{"ids": [100.0, 88.0]}]}), [100.0, 88.0]),
        (np.array([1, 2], "u1"), [1, 2]),
        (3, 3),
    ],
)
def test_predict_waits_and_leaves_nothing_behind(queues, db, job, data, expected):
    requests, _ = queues
    assert requests.predict(data, timeout=10).tolist() == expected
    assert not list(db.scan_iter(JobKeys(job).native_result("*")))
    assert db.xpending(job, GROUP)["pending"] == 0


@pytest.mark.parametrize("text", ['{"instances": []}', "[]", '{"instances": 3}', '{"x": [1]}'])
def test_predict_refuses_json_it_cannot_read(queues, text):
    with pytest.raises(InvalidInput, match=r"the JSON text .* has no instance; expected \{"):
        queues[0].predict(text)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda requests, results: results.query(None, timeout=1), r"uri is 'None' \(NoneType\); expected a str"),
        (lambda requests, results: results.query(5), r"uri is '5' \(int\)"),
        (lambda requests, results: results.query("a", timeout="1"), r"timeout is '1' \(str\); expected seconds"),
        (lambda requests, results: results.query("a", timeout=float("nan")), "timeout is nan"),
        (lambda requests, results: requests.predict({"x": 1}, timeout=-1), "timeout is -1 .* seconds, 0 or more"),
        (lambda requests, results: requests.cancel(None), "uri is 'None'"),
        (lambda requests, results: InputQueue(name=None), "name is None; expected the jobName"),
        (lambda requests, results: InputQueue(reconnect=-1), "reconnect is -1; expected seconds"),
        (lambda requests, results: InputQueue(reconnect="x"), "reconnect is 'x'"),
        (lambda requests, results: requests.enqueue("a", x=[1, "a"]), "holds items of type int and str; expected"),
    ],
)
def test_arguments_that_cannot_be_are_named(queues, call, message):
    with pytest.raises(InvalidInput, match=message):
        call(*queues)


@pytest.mark.usefixtures("echo")
def test_threads_get_their_own_results(queues):
    requests, results = queues

    def one(number):
        if number % 2:
            return requests.predict({"x": np.array([number])}, timeout=20).item()
        requests.enqueue(f"request-{number}", x=np.array([number]))
        return results.query_and_delete(f"request-{number}", timeout=20).item()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(200))) == list(range(200))


@pytest.mark.usefixtures("echo")
def test_a_name_that_is_used_again_gives_the_new_result(queues):
    requests, results = queues
    for number in range(5):
        requests.enqueue("again", x=np.array([number]))
        assert results.query("again", timeout=10).item() == number


def test_a_result_that_cannot_be_read_does_not_take_the_others_with_it(queues, db, job):
    _, results = queues
    db.hset(JobKeys(job).result("foreign"), "value", base64.b64encode(b"whatever"))
    db.hset(JobKeys(job).result("good"), mapping=encode_error(InvalidInput("reason")))
    taken = results.dequeue()
    assert isinstance(taken["good"].error, InvalidInput)
    assert isinstance(taken["foreign"].error, ServingError)


def test_a_timeout_is_as_long_as_it_says_and_raises(queues):
    requests, results = queues
    started = time.monotonic()
    with pytest.raises(ResultTimeout, match=r"within 0\.2 s; no job of that name has ever run on this Redis"):
        requests.predict({"x": np.zeros(1)}, timeout=0.2)
    with pytest.raises(TimeoutError):
        results.query("never", timeout=0.2)
    assert time.monotonic() - started >= 0.4
    assert results.query("never") is None


def test_a_query_hears_when_the_deadline_passes(queues, db, job):
    """No slot has read the request, as long as all of them compute."""
    requests, results = queues
    db.xgroup_create(job, GROUP, id="0", mkstream=True)
    requests.enqueue("late", x=np.zeros(1), deadline=0.2)
    with pytest.raises(DeadlineExceeded, match="'late' waited longer"):
        results.query("late", timeout=600)
    assert db.xlen(job) == 0
    # One that is being computed is answered by its slot.
    requests.enqueue("computed", x=np.zeros(1), deadline=0.2)
    db.xreadgroup(GROUP, "slot", {job: ">"})
    with pytest.raises(ResultTimeout):
        results.query("computed", timeout=0.5)
    assert db.xlen(job) == 1


def test_a_deadline_travels_with_the_request(queues, db, job):
    requests, _ = queues
    requests.enqueue("none", x=np.zeros(1))
    requests.enqueue("one", x=np.zeros(1), deadline=1.5)
    requests.enqueue("input", deadline=np.zeros(1))
    with pytest.raises(ResultTimeout):
        requests.predict({"deadline": 3}, timeout=0.01)
    entries = [parse_entry(*entry) for entry in db.xrange(job)]
    assert [entry.deadline for entry in entries] == [b"", b"1500", b"", b"10"]
    assert list(entries[2].decode()[1]) == ["deadline"]
    assert entries[3].decode()[1]["deadline"] == 3


def test_closing_ends_the_connections_of_all_threads(redis_server, db, job, echo):
    with InputQueue(port=redis_server.port, name=job) as requests:
        # What answers has its connections then.
        requests.predict({"x": np.array([0])}, timeout=30)
    latest = max(int(client["id"]) for client in db.client_list())
    with InputQueue(port=redis_server.port, name=job) as requests, ThreadPoolExecutor(3) as pool:

        def predict(number):
            answer = requests.predict({"x": np.array([number])}, timeout=30).item()
            asked.wait(30)
            return answer

        asked = threading.Barrier(4)
        answers = [pool.submit(predict, number) for number in range(3)]
        asked.wait(30)
        assert [answer.result(30) for answer in answers] == [0, 1, 2]
        # The threads live on.
        requests.close()
        wait_until(lambda: all(int(client["id"]) <= latest for client in db.client_list()))


def test_bad_input_queues_nothing(queues, db, job):
    with pytest.raises(InvalidInput, match="input 'x' is of type object"):
        queues[0].enqueue("a", x=object())
    with pytest.raises(InvalidInput, match="no inputs"):
        queues[0].enqueue("a")
    assert db.xlen(job) == 0


def test_an_unreachable_redis_says_so_and_keeps_the_password_to_itself():
    with (
        InputQueue(url="redis://:secret@127.0.0.1:1/0") as queue,
        pytest.raises(RedisUnavailable, match=r"127\.0\.0\.1:1") as caught,
    ):
        queue.enqueue("a", x=np.zeros(1))
    assert "secret" not in str(caught.value)


@on_each_server
def test_a_full_redis_refuses_the_request(queues, db):
    db.config_set("maxmemory-policy", "noeviction")
    db.config_set("maxmemory", 1)
    try:
        with pytest.raises(QueueFull, match="memory limit"):
            queues[0].enqueue("a", x=np.zeros(1))
    finally:
        db.config_set("maxmemory", 0)


def test_a_waiting_query_survives_a_restart_of_redis(redis_server, db, job, request):
    with OutputQueue(port=redis_server.port, name=job) as results:
        waiter = ThreadPoolExecutor(1).submit(results.query, "late", timeout=60)
        time.sleep(0.2)
        redis_server.stop()
        redis_server.start()
        request.getfixturevalue("echo")
        with InputQueue(port=redis_server.port, name=job) as requests:
            requests.enqueue("late", x=np.ones(1))
        assert waiter.result(60).tolist() == [1]
    assert threading.active_count() < 20


@pytest.mark.usefixtures("echo")
def test_a_result_that_cannot_be_deleted_is_read_all_the_same(redis_server, job, db):
    db.acl_setuser(
        "reader", enabled=True, passwords=["+word"], keys=["*"], channels=["*"], commands=["+@all", "-unlink"]
    )
    try:
        with InputQueue(port=redis_server.port, name=job) as requests:
            requests.enqueue("kept", x=np.ones(3))
        with OutputQueue(port=redis_server.port, name=job, username="reader", password="word") as results:  # noqa: S106
            assert results.query_and_delete("kept", timeout=30).tolist() == [1, 1, 1]
            assert results.query_and_delete("kept").tolist() == [1, 1, 1]
    finally:
        db.acl_deluser("reader")


@on_each_server
def test_a_redis_that_takes_no_writes_is_unavailable(redis_server, job, db):
    db.config_set("min-replicas-to-write", 1)
    try:
        with (
            InputQueue(port=redis_server.port, name=job) as requests,
            pytest.raises(RedisUnavailable, match="takes no writes: NOREPLICAS"),
        ):
            requests.enqueue("a", x=np.ones(3))
    finally:
        db.config_set("min-replicas-to-write", 0)


@on_each_server
def test_a_redis_that_has_become_a_replica_is_unavailable(redis_server, job, db):
    db.replicaof("127.0.0.1", free_port())
    try:
        with InputQueue(port=redis_server.port, name=job, reconnect=0) as requests:
            for call in (
                lambda: requests.enqueue("a", x=np.ones(3)),
                lambda: requests.predict({"x": np.ones(3)}, timeout=2),
            ):
                with pytest.raises(RedisUnavailable, match="takes no writes: .* a read only replica"):
                    call()
    finally:
        db.replicaof("NO", "ONE")


def test_a_timeout_of_a_job_that_has_run_does_not_doubt_its_name(queues, db, job):
    db.hset(JobKeys(job).slots(), "0", "{}")
    requests, results = queues
    with pytest.raises(ResultTimeout, match=r"within 0\.1 s$"):
        requests.predict({"x": np.zeros(1)}, timeout=0.1)
    with pytest.raises(ResultTimeout, match=r"no result for 'never' of job '.*' within 0\.1 s$"):
        results.query("never", timeout=0.1)
    db.delete(JobKeys(job).slots())


def test_a_request_that_redis_has_lost_is_told_so_before_its_timeout(redis_server, db, job, monkeypatch):
    monkeypatch.setattr(announcements, "RECHECK", 0.1)

    def ask():
        with InputQueue(port=redis_server.port, name=job, reconnect=0) as requests:
            return requests.predict({"x": np.zeros(1)}, timeout=60)

    with ThreadPoolExecutor() as pool:
        asked = pool.submit(ask)
        wait_until(lambda: db.xlen(job))
        db.flushdb()
        with pytest.raises(RequestLost, match="FLUSHALL"):
            asked.result(30)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_query_notices_that_redis_has_lost_a_request_of_its_process(redis_server, db, job, monkeypatch, asynchronous):
    monkeypatch.setattr(announcements, "RECHECK", 0.1)

    def query():
        with OutputQueue(url=redis_server.url, name=job) as results:
            return results.query("lost", timeout=60)

    async def query_async():
        async with AsyncOutputQueue(url=redis_server.url, name=job) as results:
            return await results.query("lost", timeout=60)

    with InputQueue(host="127.0.0.1", port=redis_server.port, name=job) as requests, ThreadPoolExecutor() as pool:
        requests.enqueue("lost", x=np.zeros(1))
        asked = pool.submit(lambda: asyncio.run(query_async()) if asynchronous else query())
        wait_until(lambda: db.pubsub_numsub(JobKeys(job).result("lost"))[0][1])
        db.flushdb()
        with pytest.raises(RequestLost, match="FLUSHALL"):
            asked.result(30)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_request_that_others_have_queued_anew_is_neither_lost_nor_beyond_cancelling(
    queues, db, job, redis_server, asynchronous
):
    """As a dead letter that is put back."""
    requests, results = queues

    async def query():
        async with AsyncOutputQueue(url=redis_server.url, name=job) as results:
            return await results.query("anew", timeout=0.5)

    requests.enqueue("anew", x=np.zeros(1))
    for _ in range(2):
        ((entry, fields),) = db.xrange(job)
        db.xdel(job, entry)
        db.xadd(job, fields)
        with pytest.raises(ResultTimeout, match="within 0.5 s"):
            asyncio.run(query()) if asynchronous else results.query("anew", timeout=0.5)
    ((entry, fields),) = db.xrange(job)
    db.xdel(job, entry)
    db.xadd(job, fields)
    assert requests.cancel("anew") is True
    assert db.xlen(job) == 0
    assert requests.cancel("anew") is False


@pytest.mark.usefixtures("echo")
@pytest.mark.parametrize("take", ["query_and_delete", "dequeue"])
def test_a_request_whose_result_this_process_has_taken_is_not_lost(queues, take):
    requests, results = queues
    requests.enqueue("taken", x=np.zeros(1))
    wait_until(lambda: results.db.exists(JobKeys(results.name).native_result("taken")))
    assert results.dequeue() if take == "dequeue" else results.query_and_delete("taken").tolist() == [0]
    with pytest.raises(ResultTimeout):
        results.query("taken", timeout=0.1)
