"""TLS with a certificate authority of one's own: a real Redis behind a proxy that speaks TLS, as stunnel does."""

import asyncio
import re

import numpy as np
import pytest

from cluster_serving.client import InputQueue, announcements
from cluster_serving.client.aio import AsyncInputQueue
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.redis import connect
from cluster_serving.protocol.errors import RedisUnavailable
from cluster_serving.protocol.redis import tls
from cluster_serving.protocol.redis.tls import WrongTLS
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

        def start(*arguments, asks=False):
            port = free_port()
            arguments = [str(port) if argument == "PROXY" else argument for argument in arguments]
            server = running(Server(tmp_path, *arguments))
            authority = certificates / "ca.pem" if asks else None
            proxies.append(TLSProxy(certificates / "server.pem", port, server.port, authority))
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


def refusals(url):
    """What each kind of client says of an address that cannot be used."""

    async def predict():
        async with AsyncInputQueue(name="{job}", url=url) as queue:
            await queue.predict({"x": np.ones(1)}, timeout=60)

    def enqueue():
        with InputQueue(name="{job}", url=url) as queue:
            queue.enqueue("a", x=np.ones(1))

    def ping():
        with connect(RedisOptions(url, "{job}")) as client:
            client.ping()

    for ask, kind in (enqueue, RedisUnavailable), (lambda: asyncio.run(predict()), RedisUnavailable), (ping, WrongTLS):
        with pytest.raises(kind) as raised:
            ask()
        assert isinstance(raised.value.__cause__ if kind is RedisUnavailable else raised.value, WrongTLS)
        yield str(raised.value)


def test_a_mistake_about_tls_is_told_by_name(behind_tls, certificates, tmp_path, monkeypatch):
    monkeypatch.setattr(tls, "_SOON", 0.5)
    monkeypatch.setattr(announcements, "CONFIRM_TIMEOUT", 0.1)
    server, port = behind_tls()
    write_certificates(tmp_path)
    authority = f"ssl_ca_certs={certificates / 'ca.pem'}"
    for url, text in (
        (f"rediss://127.0.0.1:{server.port}?{authority}", "answers without TLS"),
        (f"rediss+cluster://127.0.0.1:{server.port}?{authority}", "answers without TLS"),
        (f"redis://127.0.0.1:{port}", "answers with TLS alone"),
        (f"redis+sentinel://127.0.0.1:{port}/master", "answers with TLS alone"),
        (f"rediss://127.0.0.1:{port}", "ssl_ca_certs"),
        (f"rediss://127.0.0.1:{port}?ssl_ca_certs={tmp_path / 'ca.pem'}", "ssl_ca_certs"),
        (f"rediss://localhost:{port}?{authority}&ssl_check_hostname=true", "'localhost'.*connect by a name"),
        (f"rediss://127.0.0.1:{port}?ssl_ca_certs={tmp_path / 'none.pem'}", "No such file"),
        (f"rediss://127.0.0.1:{port}?ssl_ca_certs={__file__}", "ssl_keyfile cannot be read"),
    ):
        for told in refusals(url):
            assert re.search(text, told), (url, told)


def test_a_server_may_ask_for_a_certificate_of_the_client(behind_tls, certificates):
    _, port = behind_tls(asks=True)
    url = f"rediss://127.0.0.1:{port}?ssl_ca_certs={certificates / 'ca.pem'}"
    for told in refusals(url):
        assert "ssl_certfile" in told
    own = certificates / "server.pem"
    assert exchange(f"{url}&ssl_certfile={own}&ssl_keyfile={own}", "job") == [b"a", b"b"]


def test_tls_that_takes_long_is_waited_for(behind_tls, certificates, monkeypatch):
    monkeypatch.setattr(tls, "_SOON", 0.001)
    _, port = behind_tls()
    assert exchange(f"rediss://127.0.0.1:{port}?ssl_ca_certs={certificates / 'ca.pem'}", "job") == [b"a", b"b"]


def test_a_cluster_speaks_tls(behind_tls, certificates):
    server, port = behind_tls("--cluster-enabled", "yes", "--cluster-announce-port", "PROXY")
    server.client.execute_command("CLUSTER ADDSLOTS", *range(16384))
    wait_until(lambda: server.client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
    url = f"rediss+cluster://127.0.0.1:{port}?ssl_ca_certs={certificates / 'ca.pem'}"
    assert exchange(url, "{job}") == [b"a", b"b"]
