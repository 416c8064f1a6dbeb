"""The options of `enqueue`, and the bounded queue on a real Redis."""

import asyncio
import math
import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from cluster_serving.client import AsyncInputQueue, InputQueue, InvalidInput, OutputQueue, QueueFull, ResultTimeout
from cluster_serving.client.dispatching.dispatcher import Dispatcher
from cluster_serving.client.enqueue import DEFAULTS, RequestOptions, split
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.limits import publish_limits
from cluster_serving.protocol.entry import parse_entry
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.keys import PRIORITIES, JobKeys
from cluster_serving.protocol.redis.connection import connect_async
from cluster_serving.protocol.results import encode_result
from tests.support.fixtures.echo import answering


@pytest.fixture
def requests(redis_server, job):
    with InputQueue(port=redis_server.port, name=job) as queue:
        yield queue


def limit(db, job, length):
    publish_limits(db, RedisOptions("", job, max_queue_length=length))


def fill(queue, count, prefix="r"):
    for number in range(count):
        queue.enqueue(f"{prefix}{number}", x=np.zeros(1))


def test_a_full_queue_refuses_and_says_how_full_it_is(db, job, requests):
    limit(db, job, 3)
    fill(requests, 3)
    with pytest.raises(QueueFull, match=f"'{job}' holds 3 requests, and maxQueueLength is 3; nothing was queued"):
        requests.enqueue("late", x=np.zeros(1))
    with pytest.raises(QueueFull):
        requests.predict({"x": np.zeros(1)})
    assert db.xlen(job) == 3
    requests.cancel("r0")
    requests.enqueue("late", x=np.zeros(1))


def test_a_changed_limit_takes_effect_at_once_and_none_means_none(db, job, requests):
    limit(db, job, 1)
    fill(requests, 1)
    limit(db, job, 5)
    fill(requests, 4)
    with pytest.raises(QueueFull):
        fill(requests, 1)
    limit(db, job, 0)
    assert db.hkeys(JobKeys(job).limits) == [b"resultTtl"]
    fill(requests, 20)


def test_who_blocks_waits_for_room(db, job, requests):
    limit(db, job, 2)
    fill(requests, 2)
    with ThreadPoolExecutor(2) as pool:
        forever = pool.submit(requests.enqueue, "forever", x=np.zeros(1), block=True)
        a_minute = pool.submit(requests.enqueue, "a minute", x=np.zeros(1), timeout=60)
        time.sleep(0.3)
        assert not forever.done()
        assert not a_minute.done()
        requests.cancel("r0")
        requests.cancel("r1")
        assert {forever.result(10), a_minute.result(10)} == {"forever", "a minute"}
    assert db.xlen(job) == 2


def test_who_waits_in_vain_is_told_after_the_timeout(db, job, requests):
    limit(db, job, 1)
    fill(requests, 1)
    started = time.monotonic()
    with pytest.raises(QueueFull, match="maxQueueLength is 1"):
        requests.enqueue("late", x=np.zeros(1), block=True, timeout=0.3)
    assert time.monotonic() - started >= 0.3
    with pytest.raises(QueueFull):
        requests.enqueue("late", x=np.zeros(1), block=False, timeout=60)
    assert db.xlen(job) == 1


def test_a_full_redis_can_be_waited_for_too(db, requests):
    db.config_set("maxmemory", 1)
    with ThreadPoolExecutor(1) as pool:
        try:
            waiting = pool.submit(requests.enqueue, "a", x=np.zeros(1), timeout=60)
            time.sleep(0.2)
            assert not waiting.done()
        finally:
            db.config_set("maxmemory", 0)
        assert waiting.result(10) == "a"


def test_waiting_sends_no_payload(db, job, requests):
    limit(db, job, 1)
    fill(requests, 1)
    before = db.info("stats")["total_net_input_bytes"]
    with pytest.raises(QueueFull):
        requests.enqueue("large", x=np.zeros(100_000), timeout=0.5)
    assert db.info("stats")["total_net_input_bytes"] - before < 2 * 800_000


def test_asyncio_and_front_ends_keep_to_the_limit(redis_server, db, job):
    async def main():
        async with AsyncInputQueue(port=redis_server.port, name=job) as requests:
            await asyncio.gather(*(requests.enqueue(f"r{number}", x=np.zeros(1)) for number in range(3)))
            with pytest.raises(QueueFull):
                await requests.enqueue("late", x=np.zeros(1))
            waiting = asyncio.create_task(requests.enqueue("patient", x=np.zeros(1), block=True))
            dispatcher = Dispatcher(connect_async(url=redis_server.url))
            errors = await asyncio.gather(
                *(dispatcher.request(job, {"x": np.zeros(1)}, 30) for _ in range(5)), return_exceptions=True
            )
            assert [type(error) for error in errors] == [QueueFull] * 5
            await dispatcher.close()
            assert not waiting.done()
            await requests.cancel("r0")
            await asyncio.wait_for(waiting, 10)

    limit(db, job, 3)
    asyncio.run(main())
    assert db.xlen(job) == 3


def test_queueing_is_one_trip_and_removes_an_earlier_result(db, job, requests):
    fill(requests, 1)
    for key in JobKeys(job).results("r7"):
        db.hset(key, "value", "of an earlier request")
    db.config_resetstat()
    fill(requests, 10)
    stats = db.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == 10
    assert not {"cmdstat_eval", "cmdstat_multi", "cmdstat_script"} & set(stats)
    assert not db.exists(*JobKeys(job).results("r7"))


def test_a_restarted_redis_is_sent_the_script_again(redis_server, db, job, requests):
    fill(requests, 1)
    redis_server.stop()
    redis_server.start()
    fill(requests, 1, "again")
    assert db.xlen(job) == 2
    db.script_flush()

    async def main():
        dispatcher = Dispatcher(connect_async(url=redis_server.url))
        unanswered = (dispatcher.request(job, {"x": np.zeros(1)}, 0.5) for _ in range(5))
        errors = await asyncio.gather(*unanswered, return_exceptions=True)
        assert {type(error) for error in errors} == {ResultTimeout}
        await dispatcher.close()

    asyncio.run(main())
    db.script_flush()
    fill(requests, 1, "flushed")


def crowd(port, job, client, accepted):
    with InputQueue(port=port, name=job) as queue:
        for number in range(50):
            try:
                queue.enqueue(f"{client}-{number}", x=np.zeros(10))
            except QueueFull:
                continue
            with accepted.get_lock():
                accepted.value += 1


def test_eight_processes_at_once_do_not_overshoot(redis_server, db, job):
    limit(db, job, 100)
    context = multiprocessing.get_context("spawn")
    accepted = context.Value("i", 0)
    clients = [context.Process(target=crowd, args=(redis_server.port, job, client, accepted)) for client in range(8)]
    for process in clients:
        process.start()
    for process in clients:
        process.join(60)
    assert [process.exitcode for process in clients] == [0] * 8
    assert accepted.value == db.xlen(job) == 100


@pytest.mark.usefixtures("echo")
def test_all_who_block_are_answered(redis_server, db, job, requests):
    limit(db, job, 4)
    longest = []
    stopped = threading.Event()

    def watch():
        while not stopped.is_set():
            longest.append(db.xlen(job))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with OutputQueue(port=redis_server.port, name=job) as results, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: requests.enqueue(f"r{n}", x=np.array([n]), block=True), range(400)))
        answers = [results.query(f"r{number}", timeout=30).item() for number in range(400)]
    stopped.set()
    watcher.join()
    assert answers == list(range(400))
    assert 0 < max(longest) <= 4


def test_a_priority_is_a_stream_of_its_own_and_counts_for_the_limit(redis_server, db, job, requests):
    limit(db, job, 4)
    for priority in (*PRIORITIES, None):
        requests.enqueue(f"r-{priority}", x=np.zeros(1), priority=priority)
    with pytest.raises(QueueFull, match="holds 4 requests"):
        requests.enqueue("late", x=np.zeros(1), priority="high")
    assert [db.xlen(stream) for stream in JobKeys(job).streams] == [1, 2, 1]
    with InputQueue(port=redis_server.port, name=job) as other_client:
        assert [queue.cancel(f"r-{priority}") for queue, priority in ((requests, "high"), (other_client, "low"))] == [
            True
        ] * 2
    assert [db.xlen(stream) for stream in JobKeys(job).streams] == [0, 2, 0]
    with pytest.raises(InvalidInput, match="option 'priority' is 'urgent' .* expected high or normal or low"):
        requests.enqueue("late", x=np.zeros(1), priority="urgent")


def test_a_request_names_the_version_that_is_to_answer(redis_server, db, job, requests):
    asked, x = [], {"x": np.zeros(1)}

    def answer(entry):
        asked.append(entry.version)
        return encode_result(True, ["x"], [np.zeros(1)])

    async def main():
        async with AsyncInputQueue(port=redis_server.port, name=job) as queue:
            await queue.enqueue("c", x, version=3)
            await queue.predict(x, 30, version="4")
            assert [result.error async for result in queue.predict_many([x], version=5)] == [None]

    requests.enqueue("a", x=np.zeros(1))
    requests.enqueue("b", x=np.zeros(1), version="2")
    with answering(db, job, answer):
        asyncio.run(main())
        requests.predict(x, 30, version=6)
        assert [result.error for result in requests.predict_many([x], version="7")] == [None]
    assert asked == ["", *"234567"]
    # An input of a similar name is no option.
    assert split(None, {"region": 3, "session": 5})[0] == DEFAULTS


@pytest.mark.usefixtures("echo")
def test_predictions_of_all_priorities_are_answered(redis_server, job, requests):
    async def main():
        async with AsyncInputQueue(port=redis_server.port, name=job) as queue:
            calls = (queue.predict({"x": np.array([n])}, 30, priority=PRIORITIES[n % 3]) for n in range(60))
            assert [answer.item() for answer in await asyncio.gather(*calls)] == list(range(60))

    asyncio.run(main())
    assert [requests.predict(number, 30, priority="high").item() for number in range(3)] == [0, 1, 2]


def test_plain_values_are_options_and_the_inputs_keep_their_order():
    options, inputs = split(None, {"b": np.zeros(1), "deadline": 1.5, "a": 3})
    assert options == RequestOptions(deadline=1.5)
    assert list(inputs) == ["b", "a"]


@pytest.mark.parametrize("value", [np.zeros(1), np.float64(3), np.array(3), ["text"], b"image", Path("x.jpg")])
def test_what_is_no_plain_value_is_an_input(value):
    options, inputs = split(None, {"deadline": value})
    assert options == DEFAULTS
    assert inputs["deadline"] is value


@pytest.mark.parametrize("value", [0, -1, "5", True, math.nan])
def test_a_plain_value_that_is_no_deadline_is_refused_and_not_sent_as_an_input(value):
    with pytest.raises(InvalidInput, match=r"option 'deadline' is .* expected seconds, more than 0"):
        split(None, {"deadline": value})


@pytest.mark.parametrize(("deadline", "sent"), [(None, None), (2, 2000), (0.0001, 1), (math.inf, 0), (1e300, 0)])
def test_a_deadline_is_sent_as_whole_milliseconds(deadline, sent):
    assert RequestOptions(deadline=deadline).deadline_ms == sent


@pytest.mark.parametrize(
    ("options", "retry_budget"),
    [
        ({}, 0),
        ({"block": True}, math.inf),
        ({"block": True, "timeout": 3}, 3),
        ({"timeout": 3}, 3),
        ({"timeout": 3, "block": False}, 0),
    ],
)
def test_only_who_asks_for_it_waits_for_room(options, retry_budget):
    assert split(None, options)[0].retry_budget == retry_budget


@pytest.mark.parametrize(
    "options", [{"block": 1}, {"block": "yes"}, {"timeout": -1}, {"timeout": "3"}, {"version": "latest"}]
)
def test_other_options_are_checked_too(options):
    with pytest.raises(InvalidInput, match=f"option '{next(iter(options))}' is"):
        split(None, options)


def test_a_dict_of_inputs_has_room_for_every_name(requests, db, job):
    named = {name: np.zeros(1) for name in ("deadline", "inputs", "self", "uri", "prioity")} | {"timeout": 3}
    requests.enqueue("a", named, priority="high", deadline=1.5)
    entry = parse_entry(*db.xrange(f"{job}:high")[0])
    assert entry.deadline == b"1500"
    assert list(entry.decode()[1]) == list(named)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda q: q.enqueue("a", x=1.0, prioity="high"),
            r"'prioity' is not an option; is it 'priority'\? .* in a dict",
        ),
        (lambda q: q.enqueue("a", x=1.0, Timeout=3), "'Timeout' is not an option; is it 'timeout'"),
        (lambda q: q.enqueue("a", x=1.0, blocks=None), "'blocks' is not an option; is it 'block'"),
        (lambda q: q.enqueue("a", {"x": 1.0}, prioity=1), r"no option 'prioity'; is it 'priority'\? Besides a dict"),
        (lambda q: q.enqueue("a", {"x": 1.0}, y=np.ones(1)), r"no option 'y'\. .* deadline, priority, block, timeout"),
        (lambda q: q.enqueue("a", {"x": 1.0}, priority=np.ones(1)), "option 'priority' is .* expected high or normal"),
    ],
)
def test_a_misspelt_option_is_refused_with_the_nearest_one(db, job, requests, call, message):
    with pytest.raises(InvalidInput, match=message):
        call(requests)
    assert not any(db.xlen(stream) for stream in JobKeys(job).streams)


def test_a_name_that_resembles_an_option_is_an_input_if_it_holds_an_array():
    assert split(None, {"blocks": np.zeros(1), "times": [1, 2]})[0] == DEFAULTS


@pytest.mark.parametrize("timeout", [0, np.float32(0.001)])
def test_who_does_not_wait_still_sends_a_deadline(timeout):
    assert RequestOptions.waiting(timeout).deadline_ms in (1, 2)


@pytest.mark.parametrize("priority", ["high", "normal", "low"])
def test_a_queue_that_no_slot_can_read_is_refused_for_all_priorities(requests, db, job, priority):
    foreign = JobKeys(job).stream(priority)
    db.set(foreign, "5")
    for asked in PRIORITIES:
        with pytest.raises(ServingError, match="WRONGTYPE.*another program has a key of the job's name"):
            requests.enqueue("a", x=np.zeros(1), priority=asked)
    db.delete(foreign)
    requests.enqueue("a", x=np.zeros(1), priority=priority)
    assert db.xlen(foreign) == 1
    db.delete(foreign)
