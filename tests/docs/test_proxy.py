"""The configuration of nginx on its page, with a real nginx before a front end."""

import re
import shutil
import subprocess

import httpx
import pytest

from cluster_serving.frontend import arguments
from tests.support.fixtures.front_end import Running
from tests.support.fixtures.pages import DOCS
from tests.support.fixtures.redis_server import free_port
from tests.support.fixtures.waiting import wait_until

PAGE = (DOCS / "how-to" / "http-front-end.md").read_text("utf8")

pytestmark = pytest.mark.skipif(not shutil.which("nginx"), reason="needs nginx (apt-get install nginx-light)")


@pytest.fixture
def proxied(redis_server, tmp_path):
    """Address of an nginx before a front end."""
    front = Running(
        arguments.read([f"--redisUrl=redis://127.0.0.1:{redis_server.port}", "--port=0", "--grpcPort=0"], {})
    )
    port = free_port()
    server = re.search(r"```nginx\n(.*?)```", PAGE, re.DOTALL)[1]
    server = server.replace("listen 8080", f"listen 127.0.0.1:{port}").replace("http://127.0.0.1:10020", front.url)
    (tmp_path / "nginx.conf").write_text(
        f"daemon off; user root root; pid {tmp_path}/pid; events {{}} http {{ access_log off; "
        f"client_body_temp_path {tmp_path}/bodies; {server} }}"
    )
    words = ["nginx", "-p", str(tmp_path), "-c", "nginx.conf", "-e", "stderr"]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: (tmp_path / "pid").exists())
        yield f"http://127.0.0.1:{port}"
        process.terminate()
    front.stop()


def test_nginx_passes_on_answers_and_large_bodies(proxied):
    assert httpx.get(f"{proxied}/health/live").status_code == 200
    answer = httpx.post(
        f"{proxied}/models/none/predict", content=b'{"instances": [{"x": "' + b"A" * (40 << 20) + b'"}]}'
    )
    assert (answer.status_code, answer.json()["code"]) == (404, "MODEL_NOT_FOUND")
