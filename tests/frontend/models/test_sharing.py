"""Requests of several callers in one stream entry: each is answered as if it came alone."""

import asyncio
from collections import Counter
from contextlib import nullcontext, suppress

import httpx
import numpy as np
import pytest

from cluster_serving.frontend import caller
from cluster_serving.frontend.models import dispatch as dispatch_module
from cluster_serving.frontend.models.dispatch import Dispatch
from cluster_serving.protocol import columns
from cluster_serving.protocol.columns import Columns
from cluster_serving.protocol.entry import parse_entry
from cluster_serving.protocol.errors import InferenceFailed, ResultTimeout, ServingError
from cluster_serving.protocol.inputs import Image
from cluster_serving.protocol.keys import MAX_QUEUE_LENGTH, JobKeys
from cluster_serving.protocol.results import encode_error, encode_result
from cluster_serving.protocol.tensors import Encoded, encode
from tests.support.fixtures.echo import Consumer, echoed

FEW = dispatch_module._FEW


def ask(url, requests, **options):
    """Send requests at the same moment; return the outcome of each."""

    async def one(dispatch, number, job, record, arguments):
        caller.request_id.set(f"r{number}")
        if "client" in arguments:
            caller.set_caller(arguments.pop("client"), "")
        (outcome,), _ = await dispatch.predict(job, [record], **{"timeout": 20, "together": 16} | arguments)
        return outcome

    async def main():
        dispatch = Dispatch(url, **options)
        try:
            works = [one(dispatch, number, *request) for number, request in enumerate(requests)]
            return await asyncio.gather(*works, return_exceptions=True)
        finally:
            await dispatch.close()

    return asyncio.run(main())


@pytest.fixture
def seen():
    """The entries that the consumer of `answer` has read."""
    return []


@pytest.fixture
def answering(redis_server, job, seen):
    """Starts a consumer that answers as a function does."""

    def answering(answer=echoed):
        def noted(entry):
            seen.append(entry)
            return answer(entry)

        return Consumer(redis_server.url, job, noted)

    return answering


def vector(number, size=3):
    return {"x": np.full(size, number, "f4")}


def sizes(seen):
    return sorted(entry.record_count for entry in seen)


@pytest.mark.parametrize("make", [vector, lambda number: Encoded(encode(vector(number)))], ids=["arrays", "bytes"])
def test_each_caller_gets_the_answer_to_its_own_record(redis_server, job, answering, seen, make):
    with answering():
        outcomes = ask(redis_server.url, [(job, make(number), {}) for number in range(40)])
    assert [outcome["x"].tolist() for outcome in outcomes] == [[number] * 3 for number in range(40)]
    # The first find nobody in flight; of the others, 16 share an entry.
    assert sizes(seen) == [*[1] * FEW, 4, 16, 16]
    ids = [uri.partition("/")[2] for entry in seen for uri in entry.uris]
    assert sorted(ids) == sorted(f"r{number}" for number in range(40))


def test_requests_that_differ_in_more_than_their_numbers_are_apart(redis_server, job, answering, seen):
    kinds = [
        (vector(1), {}),
        (vector(2, 4), {}),
        ({"y": np.zeros(3, "f4")}, {}),
        ({"x": np.zeros(3, "i8")}, {}),
        (vector(3), {"priority": "high"}),
        (vector(4), {"version": "7"}),
        (vector(5), {"client": "else"}),
        (vector(6), {"timeout": 10}),
    ]
    with answering():
        ask(redis_server.url, [(job, record, dict(wish)) for record, wish in kinds * 9])
    assert sum(sizes(seen)) == 9 * len(kinds)
    assert max(sizes(seen)) == 9 and len(seen) == FEW + len(kinds)


@pytest.mark.parametrize(
    "record",
    [
        {"x": np.array("text", object)},
        {"x": np.array("text", object), "y": np.zeros(3, "f4")},
        {"x": Image(b"\xff\xd8\xff")},
        vector(0, columns.STACKED_BYTES),
    ],
    ids=["text", "beside text", "image", "large"],
)
def test_only_small_tensors_of_numbers_share_an_entry(redis_server, job, answering, seen, record):
    with answering(lambda entry: encode_result(entry.native, ["y"], [np.zeros(1, "f4")])):
        ask(redis_server.url, [(job, record, {}) for _ in range(12)])
    assert sizes(seen) == [1] * 12


@pytest.mark.parametrize(
    ("options", "arguments", "sampled"),
    [
        ({}, {"together": 1}, ""),
        ({}, {"bounded": True}, ""),
        ({"window": 0.05, "window_count": 12}, {}, ""),
        ({}, {}, "0af7651916cd43dd8448eb211c80319c"),
    ],
    ids=["a job without columns", "a bounded queue", "a front end that gathers", "a sampled trace"],
)
def test_where_each_request_needs_an_entry_it_has_one(redis_server, job, answering, seen, options, arguments, sampled):
    token = caller.trace_id.set(sampled)
    try:
        with answering():
            ask(redis_server.url, [(job, vector(0), dict(arguments)) for _ in range(12)], **options)
    finally:
        caller.trace_id.reset(token)
    assert sizes(seen) == [1] * 12


def test_a_record_that_fails_does_so_alone(redis_server, job, answering):
    def answer(entry):
        inputs = entry.decode()[1]
        rows = Columns(inputs) if entry.records else [inputs]
        results = [
            encode_error(InferenceFailed(f"{row['x'][0]:g} is bad"))
            if row["x"][0] % 10 == 9
            else encode_result(True, ["x"], [row["x"]])
            for row in rows
        ]
        return columns.joined(results) if entry.records else results[0]

    with answering(answer):
        outcomes = ask(redis_server.url, [(job, vector(number), {}) for number in range(40)])
    for number, outcome in enumerate(outcomes):
        if number % 10 == 9:
            assert isinstance(outcome, InferenceFailed) and str(outcome) == f"{number} is bad"
        else:
            assert outcome["x"].tolist() == [number] * 3


def test_an_entry_that_fails_as_a_whole_fails_for_each_of_its_callers(redis_server, job, answering):
    def refuse(entry):
        raise InferenceFailed("no")

    with answering(refuse):
        outcomes = ask(redis_server.url, [(job, vector(number), {}) for number in range(30)])
    assert [str(outcome) for outcome in outcomes] == ["no"] * 30
    # A caller that raises its error changes none of the others'.
    assert len(set(map(id, outcomes))) == 30


def test_nobody_waits_longer_than_asked(redis_server, job):
    outcomes = ask(redis_server.url, [(job, vector(number), {"timeout": 0.3}) for number in range(20)])
    assert {type(outcome) for outcome in outcomes} == {ResultTimeout}


@pytest.mark.parametrize("gone", [range(8, 20), range(20)], ids=["some", "all"])
def test_an_entry_is_withdrawn_when_all_of_its_callers_have_gone(redis_server, db, job, answering, gone):
    async def main():
        dispatch = Dispatch(redis_server.url)
        asked = [asyncio.create_task(dispatch.predict(job, [vector(number)], 20, together=32)) for number in range(20)]
        while db.xlen(job) < FEW + 1:
            await asyncio.sleep(0.01)
        for number in gone:
            asked[number].cancel()
        await asyncio.sleep(0)
        stays = len(gone) < len(asked)
        with answering() if stays else nullcontext():
            found = await asyncio.gather(*asked, return_exceptions=True)
            while db.xlen(job):
                await asyncio.sleep(0.01)
        await dispatch.close()
        return found

    found = asyncio.run(asyncio.wait_for(main(), 20))
    for number, answer in enumerate(found):
        if number in gone:
            assert isinstance(answer, asyncio.CancelledError)
        else:
            assert answer.outcomes[0]["x"].tolist() == [number] * 3


def test_ids_of_callers_never_make_a_uri_too_long(redis_server, db, job):
    async def one(dispatch, number):
        caller.request_id.set(f"{number:0>128}")
        with suppress(ServingError):
            await dispatch.predict(job, [vector(number)], 1, together=4096)

    async def main():
        dispatch = Dispatch(redis_server.url)
        asked = [asyncio.create_task(one(dispatch, number)) for number in range(100)]
        while sum(entry.record_count for entry in entries()) < 100:
            await asyncio.sleep(0.01)
        found = entries()
        await asyncio.gather(*asked)
        await dispatch.close()
        return found

    def entries():
        return [parse_entry(at, fields) for at, fields in db.xrange(JobKeys(job).stream("normal"))]

    found = asyncio.run(main())
    for entry in found:
        entry.decode()
    assert max(sizes(found)) == 23
    assert sorted(uri.partition("/")[2] for entry in found for uri in entry.uris) == [f"{n:0>128}" for n in range(100)]


def test_a_bounded_queue_holds_its_number_of_requests(serve, report, db, job):
    report(("x", "float32", (None, None)), columns=True, max_batch_size=64)
    db.hset(JobKeys(job).limits, MAX_QUEUE_LENGTH, 10)

    async def ask(client):
        body, patience = {"instances": [{"x": [1]}]}, {"X-Timeout-Ms": "2000"}
        answer = await client.post(f"/v1/models/{job}:predict", json=body, headers=patience)
        return answer.status_code

    async def main():
        async with httpx.AsyncClient(base_url=serve().url, timeout=30) as client:
            return Counter(await asyncio.gather(*(ask(client) for _ in range(60))))

    # Nobody answers those that the queue takes.
    assert asyncio.run(main()) == {504: 10, 429: 50}
