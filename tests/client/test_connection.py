"""A dedicated connection of one task, on a real Redis."""

import asyncio

import pytest
from redis.exceptions import ResponseError, TimeoutError

from cluster_serving.client.dispatching.connection import DedicatedAsyncConnection
from cluster_serving.protocol.redis.connection import connect_async
from cluster_serving.protocol.scripts import Call, Script

ECHO = Script("return ARGV[1]")
FAIL = Script("return redis.error_reply('NO reason')")


def run(redis_server, work, **options):
    async def main():
        client = connect_async(url=redis_server.url, **options)
        connection = DedicatedAsyncConnection(client)
        try:
            return await work(connection)
        finally:
            await connection.close()
            await client.aclose()

    return asyncio.run(main())


def echo(number):
    return Call(ECHO, [], [number])


def test_what_redis_refuses_of_one_call_stands_in_its_place(redis_server, db):
    db.script_flush()

    async def work(connection):
        first = await connection.call_all([echo(1), Call(FAIL, [], []), echo(2)])
        return [*first, *await connection.call_all([echo(3)])]

    one, refused, two, three = run(redis_server, work)
    assert [one, two, three] == [b"1", b"2", b"3"]
    assert isinstance(refused, ResponseError)


def test_a_lost_connection_is_made_again(redis_server, db):
    async def work(connection):
        replies = []
        for number in range(3):
            replies += await connection.call_all([echo(number)])
            db.client_kill_filter(_type="normal", skipme=True)
        return replies

    assert run(redis_server, work) == [b"0", b"1", b"2"]


def test_the_reply_to_a_cancelled_trip_is_not_taken_for_another(redis_server, db):
    async def work(connection):
        await connection.call_all([echo("first")])
        db.client_pause(200)
        trip = asyncio.create_task(connection.call_all([echo("theirs")]))
        await asyncio.sleep(0.05)
        trip.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trip
        return await connection.call_all([echo("mine")])

    assert run(redis_server, work) == [b"mine"]


def test_a_redis_that_hangs_is_not_waited_for(redis_server, db):
    async def work(connection):
        await connection.call_all([echo("first")])
        db.client_pause(600)
        with pytest.raises(TimeoutError, match=r"Redis did not answer within 0\.2 s"):
            await connection.call_all([echo("late")])
        await asyncio.to_thread(db.ping)
        return await connection.call_all([echo("again")])

    assert run(redis_server, work, socket_timeout=0.2) == [b"again"]
