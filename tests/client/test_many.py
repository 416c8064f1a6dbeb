"""`predict_many` of both clients, on a real Redis with an echoing consumer."""

import asyncio
import itertools
import subprocess
import sys

import numpy as np
import pytest

from cluster_serving.client import AsyncInputQueue, InferenceFailed, InputQueue, InvalidInput, QueueFull, ResultTimeout
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.limits import publish_limits
from cluster_serving.protocol import columns
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.results import encode_error, encode_result
from cluster_serving.protocol.slots import SlotReport
from tests.support.fixtures.echo import answering, echoed
from tests.support.fixtures.waiting import wait_until


def both(redis_server, job):
    """The two clients, each as a function from arguments of `predict_many` to the list of results."""

    def sync(*arguments, **options):
        with InputQueue(port=redis_server.port, name=job) as queue:
            return list(queue.predict_many(*arguments, **options))

    def by_asyncio(*arguments, **options):
        async def main():
            async with AsyncInputQueue(port=redis_server.port, name=job) as queue:
                return [result async for result in queue.predict_many(*arguments, **options)]

        return asyncio.run(main())

    return sync, by_asyncio


@pytest.mark.usefixtures("echo")
def test_results_are_in_order_and_errors_in_their_place(redis_server, db, job):
    items = [{"x": np.array([n])} if n % 10 else {"x": {n}} for n in range(300)]
    for predict_many in both(redis_server, job):
        found = predict_many(iter(items), in_flight=32)
        assert [n for n, result in enumerate(found) if result.error] == list(range(0, 300, 10))
        assert "input 'x' is of type set" in str(found[0].error)
        assert [result.item() for result in found if not result.error] == [n for n in range(300) if n % 10]
        assert not list(db.scan_iter(JobKeys(job).native_result("*")))
        assert predict_many([]) == []


@pytest.mark.usefixtures("echo")
def test_an_error_ends_the_iteration_if_asked_to(redis_server, job):
    for predict_many in both(redis_server, job):
        with pytest.raises(InvalidInput, match="input 'x' is of type set"):
            predict_many([{"x": 1.0}, {"x": {1}}, {"x": 2.0}], raise_errors=True)


def test_a_record_that_is_refused_for_others_of_its_entry_is_sent_again_by_itself(redis_server, db, job):
    report = SlotReport("", "ready", max_batch_size=8, columns=True)
    db.hset(JobKeys(job).slots(), "0", report.to_json())
    entries = []

    def answer(entry):
        entries.append(entry.record_count)
        _, inputs = entry.decode()
        if not entry.records:
            # A client that the job computes slowly tries again.
            is_first = entries.count(1) == 1
            return encode_error(QueueFull("later")) if is_first else encode_result(True, ["x"], [inputs["x"]])
        refused = {3: QueueFull("no room"), 5: QueueFull("no room"), 6: InferenceFailed("negative")}
        return columns.joined(
            [
                encode_error(refused[number]) if number in refused else encode_result(True, ["x"], [inputs["x"][at]])
                for at, number in enumerate(inputs["x"][:, 0].tolist())
            ]
        )

    items = [{"x": np.array([number])} for number in range(8)]
    with answering(db, job, answer):
        for predict_many in both(redis_server, job):
            entries.clear()
            found = predict_many(items, in_flight=16)
            assert [result.item() for result in found if not result.error] == [0, 1, 2, 3, 4, 5, 7]
            assert isinstance(found[6].error, InferenceFailed)
            # One of the two refused ones is refused by itself, too, before it is answered.
            assert entries == [8, 1, 1, 1]
    db.delete(JobKeys(job).slots())


@pytest.mark.parametrize("alike", [True, False])
def test_a_large_call_has_two_batches_for_each_slot_in_the_queue(redis_server, db, job, alike):
    report = SlotReport("", "ready", max_batch_size=8, columns=True).to_json()
    db.hset(JobKeys(job).slots(), mapping=dict.fromkeys("012", report))
    # Records of other sizes have entries of their own.
    items = [np.full(1 if alike else 1 + n % 8, n) for n in range(400)]
    queued = []

    def answer(entry):
        queued.append(db.xlen(job))
        return echoed(entry)

    with answering(db, job, answer):
        for predict_many in both(redis_server, job):
            assert [result[..., 0].item() for result in predict_many(items)] == [*range(400)]
    most = 6 if alike else 48
    assert most // 2 < max(queued) <= most
    db.delete(JobKeys(job).slots())


@pytest.mark.usefixtures("echo")
def test_items_are_taken_as_results_are(redis_server, job):
    taken = itertools.count()
    items = (np.array([next(taken)]) for _ in itertools.count())
    with InputQueue(port=redis_server.port, name=job) as queue:
        found = queue.predict_many(items, in_flight=5, priority="high")
        for number in range(50):
            assert next(found).item() == number
        found.close()
    assert next(taken) == 54

    async def endless():
        for number in itertools.count():
            yield np.array([number])

    async def main():
        async with AsyncInputQueue(port=redis_server.port, name=job) as queue:
            found = queue.predict_many(endless(), in_flight=5)
            assert [(await found.__anext__()).item() for _ in range(50)] == list(range(50))
            await found.aclose()

    asyncio.run(main())


def test_a_closed_iterator_withdraws_its_requests(redis_server, db, job):
    with InputQueue(port=redis_server.port, name=job) as queue:
        found = queue.predict_many(iter([np.zeros(1)] * 5), in_flight=5, timeout=0.5)
        assert isinstance(next(found).error, ResultTimeout)
        found.close()
    wait_until(lambda: db.xlen(job) == 0)


def test_an_iterator_may_be_collected_in_any_thread(redis_server, db, job):
    with InputQueue(port=redis_server.port, name=job) as queue:
        found = queue.predict_many(iter([np.zeros(1)] * 5), in_flight=5, timeout=0.1)
        assert isinstance(next(found).error, ResultTimeout)
        # Where a wait for the end of its loop would never end.
        found.gi_frame.f_locals["loop"].call_soon_threadsafe(found.close)
        wait_until(lambda: found.gi_frame is None)
    wait_until(lambda: db.xlen(job) == 0)


@pytest.mark.usefixtures("echo")
def test_a_full_queue_is_waited_for(redis_server, db, job):
    publish_limits(db, RedisOptions("", job, max_queue_length=3))
    for predict_many in both(redis_server, job):
        assert [result.item() for result in predict_many(range(100), in_flight=20)] == list(range(100))


@pytest.mark.parametrize("options", [{"in_flight": 0}, {"in_flight": 1.5}, {"timeout": "3"}, {"priority": "urgent"}])
def test_options_are_checked_at_once(redis_server, job, options):
    with InputQueue(port=redis_server.port, name=job) as queue, pytest.raises(InvalidInput, match=next(iter(options))):
        queue.predict_many([], **options)


@pytest.mark.usefixtures("echo")
def test_a_program_may_end_with_an_iterator_in_use(redis_server, job):
    program = (
        "from cluster_serving.client import InputQueue\n"
        f"found = InputQueue(port={redis_server.port}, name={job!r}).predict_many(range(100))\n"
        "print(next(found).item())"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True, timeout=60) == "0\n"
