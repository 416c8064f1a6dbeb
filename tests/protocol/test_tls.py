"""TLS with a certificate authority of one's own: a real Redis behind a proxy that speaks TLS, as stunnel does."""

import asyncio

import numpy as np
import pytest

from cluster_serving.client import InputQueue
from cluster_serving.client.aio import AsyncInputQueue
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.redis import connect
from cluster_serving.protocol.errors import RedisUnavailable
from tests.support.fixtures.redis_server import free_port
from tests.support.fixtures.redis_topologies import Server, servers
from tests.support.fixtures.tls import TLSProxy, write_certificates
from tests.support.fixtures.waiting import wait_until


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    write_certificates(folder)
    return folder


@pytest.fixture
def behind_tls(certificates, tmp_path):
    """Starts a Redis and a proxy before it; gives the port of the proxy."""
    proxies = []
    with servers() as running:

        def start(*arguments):
            port = free_port()
            arguments = [str(port) if argument == "PROXY" else argument for argument in arguments]
            server = running(Server(tmp_path, *arguments))
            proxies.append(TLSProxy(certificates / "server.pem", port, server.port))
            return server, port

        yield start
    for proxy in proxies:
        proxy.close()


def exchange(url, job):
    """Write through a client, through an asyncio client, and read through the job's connection."""
    with InputQueue(name=job, url=url) as requests:
        requests.enqueue("a", x=np.zeros(100_000))

    async def enqueue():
        async with AsyncInputQueue(name=job, url=url) as queue:
            await queue.enqueue("b", x=np.ones(1))

    asyncio.run(enqueue())
    with connect(RedisOptions(url, job)) as client:
        return [fields[b"uri"] for _, fields in client.xrange(job)]


def test_an_authority_of_ones_own_is_named_in_the_url(behind_tls, certificates):
    server, port = behind_tls()
    server.client.config_set("requirepass", "secret")
    url = f"rediss://:secret@127.0.0.1:{port}/0?ssl_ca_certs={certificates / 'ca.pem'}&ssl_check_hostname=true"
    assert exchange(url, "job") == [b"a", b"b"]


def test_tls_may_be_an_option_beside_host_and_port(behind_tls, certificates):
    server, port = behind_tls()
    options = {"host": "127.0.0.1", "port": port, "name": "job", "ssl": True, "ssl_ca_certs": certificates / "ca.pem"}
    with InputQueue(**options) as requests:
        requests.enqueue("a", x=np.zeros(1))

    async def enqueue():
        async with AsyncInputQueue(**options) as queue:
            await queue.enqueue("b", x=np.ones(1))

    asyncio.run(enqueue())
    assert server.client.xlen("job") == 2


def test_an_authority_that_is_not_trusted_is_refused(behind_tls):
    _, port = behind_tls()
    with (
        InputQueue(url=f"rediss://127.0.0.1:{port}/0") as requests,
        pytest.raises(RedisUnavailable, match="certificate"),
    ):
        requests.enqueue("a", x=np.zeros(1))


def test_a_cluster_speaks_tls(behind_tls, certificates):
    server, port = behind_tls("--cluster-enabled", "yes", "--cluster-announce-port", "PROXY")
    server.client.execute_command("CLUSTER ADDSLOTS", *range(16384))
    wait_until(lambda: server.client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
    url = f"rediss+cluster://127.0.0.1:{port}?ssl_ca_certs={certificates / 'ca.pem'}"
    assert exchange(url, "{job}") == [b"a", b"b"]
