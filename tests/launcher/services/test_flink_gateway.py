"""The gateway of a JobManager, with a process in the place of the JobManager."""

import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import flink_gateway
from cluster_serving.launcher.services.flink_home import FlinkHome
from cluster_serving.settings.addresses import Address


@pytest.fixture
def home(tmp_path):
    (tmp_path / "tmp").mkdir()
    home = FlinkHome(tmp_path)
    assert flink_gateway.settings(home, Address("localhost", 8081), {})
    return home


@contextmanager
def job_manager(answer):
    """A server that gives what `answer` returns for a body of the request."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            text = answer(self.path, body).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *arguments):
            pass

    with HTTPServer(("localhost", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Address("localhost", server.server_port)
        server.shutdown()
        thread.join()


def run_script(body):
    """What `PythonDriver` does: it starts the client's Python, and waits for its end."""
    script = body["flinkConfiguration"]["python.client.executable"]
    return subprocess.run([script, "-u", "-m", "gateway"], env={"PYFLINK_GATEWAY_PORT": "4711"}, check=True)


def test_the_port_is_handed_over_and_the_gateway_is_open_until_the_end(home):
    seen = {}

    def answer(path, body):
        jar = home.path / "upload" / "flink-web-upload" / path.split("/")[2]
        seen["jar"] = jar.read_bytes()[:2]
        run_script(body)
        seen["ended"] = True
        return "{}"

    with job_manager(answer) as address:
        with flink_gateway.opened(home, address) as gateway:
            assert os.read(gateway.port, 100) == b"4711\n"
            gateway.check()
            assert seen == {"jar": b"PK"}
        assert seen["ended"]
    # No jar stays that a page could have run, and no pipe.
    assert [*home.path.glob("upload/*/*"), *home.path.glob("tmp/*")] == []


def test_a_job_manager_that_gives_up_says_why(home):
    trace = "<Exception on server side:\njava.io.IOException: no space\n\tat a.b.C"
    with (
        job_manager(lambda path, body: json.dumps({"errors": ["Internal server error.", trace]})) as address,
        flink_gateway.opened(home, address) as gateway,
    ):
        gateway.join(30)
        with pytest.raises(LaunchError, match="take the job: java.io.IOException: no space$"):
            gateway.check()


def test_a_command_that_is_killed_keeps_no_gateway_open(home):
    ended = threading.Event()

    def answer(path, body):
        run_script(body)
        ended.set()
        return "{}"

    program = """
import os, signal, sys
from pathlib import Path
from cluster_serving.launcher.services import flink_gateway
from cluster_serving.launcher.services.flink_home import FlinkHome
from cluster_serving.settings.addresses import Address

with flink_gateway.opened(FlinkHome(Path(sys.argv[1])), Address("localhost", int(sys.argv[2]))) as gateway:
    os.read(gateway.port, 100)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    with job_manager(answer) as address:
        subprocess.run([sys.executable, "-c", program, home.path, str(address.port)], check=False)
        assert ended.wait(30)


def test_users_who_say_who_reaches_flink_have_their_way(home):
    for option in ("rest.bind-address", "web.submit.enable", "security.ssl.rest.enabled"):
        assert flink_gateway.settings(home, Address("localhost", 8081), {option: "x"}) == {}
        assert not flink_gateway.exists(home)
    settings = flink_gateway.settings(home, Address("localhost", 8081), {"taskmanager.numberOfTaskSlots": 2})
    assert settings["web.access-control-allow-origin"] == "http://localhost:8081"
    assert flink_gateway.exists(home)
