"""Connections that die silently: a proxy forgets them, as a load balancer does, and neither end hears of it."""

import asyncio
import socket
import sys
import time

import numpy as np
import pytest

from cluster_serving.client import AsyncInputQueue, AsyncOutputQueue, InputQueue, OutputQueue, announcements
from cluster_serving.protocol.redis import dedicated, reconnecting
from cluster_serving.protocol.redis.connection import connect, connect_async
from tests.support.fixtures.stalling import StallingProxy

pytestmark = pytest.mark.usefixtures("echo")

IDLE = 0.2


@pytest.fixture(autouse=True)
def _without_rechecks(monkeypatch):
    """Only the check of a silent connection may notice that it is dead."""
    monkeypatch.setattr(announcements, "RECHECK", 3600.0)
    monkeypatch.setattr(dedicated, "_TRUSTED_S", IDLE)
    for module in (dedicated, reconnecting):
        monkeypatch.setattr(module, "CHECK_TIMEOUT", IDLE)


@pytest.fixture
def proxy(redis_server):
    with StallingProxy(f"{redis_server.host}:{redis_server.port}") as proxy:
        yield proxy


@pytest.fixture
def address(proxy, job):
    return {
        "url": f"redis://{proxy.address}",
        "name": job,
        "socket_timeout": 3600.0,
        "health_check_interval": IDLE,
    }


def test_a_synchronous_client_notices_it_after_a_pause(proxy, address):
    with InputQueue(**address) as requests, OutputQueue(**address) as results:
        for number in range(3):
            assert requests.predict(np.array([number]), timeout=60).item() == number
            assert (
                results.query_and_delete(requests.enqueue("queued", x=np.array([number])), timeout=60).item() == number
            )
            proxy.forget()
            time.sleep(2 * IDLE)


def test_an_asyncio_client_notices_it_after_a_pause(proxy, address):
    async def main():
        async with AsyncInputQueue(**address) as requests, AsyncOutputQueue(**address) as results:
            for number in range(3):
                assert (await requests.predict(np.array([number]), timeout=60)).item() == number
                await requests.enqueue("queued", {"x": np.array([number])})
                assert (await results.query_and_delete("queued", timeout=60)).item() == number
                # A command on its way would be waited for as long as the timeout of the socket says.
                await asyncio.sleep(IDLE)
                proxy.forget()
                await asyncio.sleep(2 * IDLE)

    asyncio.run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels have other options")
def test_the_kernel_notices_it_within_seconds(redis_server):
    def seconds(connected):
        idle, pause, times = (
            connected.getsockopt(socket.IPPROTO_TCP, name)
            for name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        return idle + pause * times, connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) / 1000

    async def asynchronous():
        async with connect_async(url=redis_server.url) as client:
            connection = client.connection_pool.make_connection()
            await connection.connect()
            found = seconds(connection._writer.get_extra_info("socket"))
            await connection.disconnect()
            return found

    with connect("localhost", 6379, redis_server.url) as client:
        connection = client.connection_pool.make_connection()
        connection.connect()
        assert seconds(connection._sock) == asyncio.run(asynchronous()) == (11, 2)
        connection.disconnect()
