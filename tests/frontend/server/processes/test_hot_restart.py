"""A front end that takes over from the one before it, as `cluster-serving-restart --http` starts it."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import contextmanager

import grpc
import httpx
import pytest
import yaml

from cluster_serving.frontend.proto import inference
from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import front_end, state
from cluster_serving.launcher.services.process import Process
from cluster_serving.settings.addresses import Address
from tests.support.fixtures.grpc_calls import raw
from tests.support.fixtures.redis_server import free_port
from tests.support.fixtures.supervised import kept
from tests.support.fixtures.tls import write_certificates
from tests.support.fixtures.waiting import PAUSE_S, wait_until

BODY = json.dumps({"instances": [{"x": [1, 2]}]}).encode()
SERVICE = "/inference.GRPCInferenceService"


class Launched:
    """A front end that the launcher starts, for a job that echoes vectors."""

    def __init__(self, folder, redis_port, job):
        self.http, self.https, self.grpc = (free_port() for _ in range(3))
        self.home = state.folder(front_end.SERVICE, Address("localhost", self.http))
        write_certificates(folder)
        self._path = folder / "config.yaml"
        self._config = {"modelPath": "m", "jobName": job, "redisUrl": f"127.0.0.1:{redis_port}"}
        certificate = str(folder / "server.pem")
        tls = {
            "httpsEnabled": True,
            "httpsCertificatePath": certificate,
            "httpsPrivateKeyPath": certificate,
            "securePort": self.https,
        }
        self._options = {"port": self.http, "grpcPort": self.grpc, "grpcConnectionAge": 1, **tls}
        self.trust = ssl.create_default_context(cafile=folder / "ca.pem")
        self.credentials = grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes())

    def ensure(self, again=False, **options):
        self._path.write_text(yaml.safe_dump(self._config | {"http": self._options | options}))
        return front_end.ensure(config_file.read(self._path), self._path, again)

    @property
    def group(self):
        return Process.read(self.home / "process.json").pid


@pytest.fixture
def launched(tmp_path, monkeypatch, redis_server, vectors, echo, job):
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "state"))
    made = Launched(tmp_path, redis_server.port, job)
    yield made
    front_end.stop(Address("localhost", made.http))
    assert not list(made.home.glob("*.sock"))


@contextmanager
def asking(*clients):
    """Run functions again and again, at the same time. Yield their numbers of successes, and all failures."""
    stopped, counts, failures = threading.Event(), [0] * len(clients), []

    def run(index):
        while not stopped.wait(PAUSE_S):
            try:
                clients[index]()
                counts[index] += 1
            except Exception as error:
                failures.append(repr(error))

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(clients))]
    for thread in threads:
        thread.start()
    try:
        yield counts, failures
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def predict(client):
    assert client.post("/predict", content=BODY).json()["predictions"]


@pytest.mark.parametrize("workers", [1, 3])
def test_no_request_fails_while_front_ends_succeed_one_another(launched, job, workers):
    url = launched.ensure(workers=workers)
    request = raw([bytes(8)], model_name=job).SerializeToString()
    target, own = f"127.0.0.1:{launched.grpc}", [("grpc.use_local_subchannel_pool", 1)]
    clients = [httpx.Client(base_url=url, timeout=60) for _ in range(2)]
    clients.append(httpx.Client(base_url=f"https://127.0.0.1:{launched.https}", timeout=60, verify=launched.trust))
    channels = [grpc.secure_channel(target, launched.credentials, own) for _ in range(2)]
    messages_end = threading.Event()

    def unary():
        channels[0].unary_unary(f"{SERVICE}/ModelInfer", None, None)(request, timeout=60)

    def over_new_channel():
        with grpc.secure_channel(target, launched.credentials, own) as channel:
            channel.unary_unary(f"{SERVICE}/ModelInfer", None, None)(request, timeout=60)

    def over_new_connection():
        with httpx.Client(base_url=url, timeout=60) as client:
            predict(client)

    def messages():
        while not messages_end.wait(0.1):
            yield request

    stream = channels[1].stream_stream(f"{SERVICE}/ModelStreamInfer", None, None)(messages(), timeout=120)
    groups = [launched.group]
    with asking(
        *(lambda client=client: predict(client) for client in clients), over_new_connection, over_new_channel, unary
    ) as (counts, failures):
        launched.ensure(again=True, workers=workers)
        groups.append(launched.group)
        # The stream goes on with the front end that took it, which ends after it.
        assert not next(parsed(stream)).error_message
        messages_end.set()
        assert not any(reply.error_message for reply in parsed(stream))
        assert launched.ensure(again=True, workers=workers) == url
        groups.append(launched.group)
        counts[:] = [0] * len(counts)
        wait_until(lambda: all(counts))
    assert failures == []
    assert len(set(groups)) == 3
    # Killed, it comes back on its ports, even if the one before it has not ended yet.
    os.kill(kept(launched.group), signal.SIGKILL)
    for ask in (lambda: predict(clients[0]), unary):
        wait_until(lambda ask=ask: is_answered(ask))
    wait_until(lambda: Process.read(launched.home / "retired") is None, 60)
    for client in (*clients, *channels):
        client.close()


def parsed(stream):
    return map(inference.ModelStreamInferResponse.FromString, stream)


def is_answered(ask):
    """Return False if a client notices only with this request that its connection has ended."""
    try:
        ask()
    except (httpx.TransportError, grpc.RpcError):
        return False
    return True


def test_a_new_process_that_cannot_start_leaves_the_front_end_as_it_is(launched):
    url, group = launched.ensure(), launched.group
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LaunchError, match=f"earlier one goes on.*port {port} for gRPC"):
            launched.ensure(again=True, grpcPort=port)
    with pytest.raises(LaunchError, match="earlier one goes on.*cannot be read"):
        launched.ensure(again=True, apiKeysFile="missing")
    assert launched.group == group
    with httpx.Client(base_url=url, timeout=60) as client:
        predict(client)


def test_a_change_whose_command_died_is_completed_by_the_next_command(launched, monkeypatch):
    launched.ensure()
    first = launched.group
    with monkeypatch.context() as patched:
        patched.setattr(front_end, "_switch", lambda home: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            launched.ensure(again=True)
    assert launched.group == first
    launched.ensure()
    assert launched.group != first
    # The present options hold at once.
    url = launched.ensure(again=True, maxInstances=1)
    assert httpx.post(f"{url}/predict", content=json.dumps({"instances": [{"x": [1, 2]}] * 2})).status_code == 413
    wait_until(lambda: Process.read(launched.home / "retired") is None, 60)
    # The ports are for new processes alone.
    command = [sys.executable, "-m", "cluster_serving.frontend.main"]
    for ports in ([f"--port={launched.http}", "--grpcPort=0"], ["--port=0", f"--grpcPort={launched.grpc}"]):
        done = subprocess.run([*command, *ports], capture_output=True, text=True, timeout=60)
        assert (done.returncode, "cannot listen" in done.stderr) == (1, True), done.stderr


def test_a_grpc_port_that_nobody_has_chosen_stays(launched):
    for again in (False, True):
        launched.ensure(again, grpcPort=0)
    text = (launched.home / "http.log").read_text()
    first, second = [line.rpartition(":")[2] for line in text.splitlines() if "answers at" in line]
    assert first == second
