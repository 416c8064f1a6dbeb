"""The command against an HTTP server that answers as the front end does; no job and no Redis."""

import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.fixtures.commands import BIN

BYTES_ANSWER = {"outputs": [{"name": "y", "datatype": "BYTES", "shape": [1, 1], "data": ["0.9:3"]}]}
ANSWERS = {
    "/models/b/predict": {"predictions": [{"value": [1.0, 2.0]}]},
    "/v2/models/b/infer": BYTES_ANSWER,
}


@pytest.fixture(scope="module")
def address():
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            answer = ANSWERS.get(self.path)
            body = json.dumps(answer).encode()
            self.send_response(200 if answer else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def bench(address, tmp_path, *arguments):
    command = [BIN / "cluster-serving-bench", "--http-url", address, "--redis-url", "redis://127.0.0.1:1/0"]
    command += ["--name", "x", "--requests", "16", "--json", tmp_path / "r.json", *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)
    return done, json.loads((tmp_path / "r.json").read_text()) if done.returncode == 0 else None


@pytest.mark.parametrize("arguments", [("--shape", "4"), ("--protocol", "v2", "--image", "synthetic")], ids=" ".join)
def test_the_job_that_is_named_is_asked(address, tmp_path, arguments):
    done, document = bench(address, tmp_path, "--job", "b", *arguments)
    assert done.returncode == 0, done.stderr
    (result,) = document["results"]
    assert (result["sent"], result["answered"], result["errors"], result["lost"]) == (16, 16, {}, 0)


def test_an_option_of_few_values_names_them(address, tmp_path):
    done, _ = bench(address, tmp_path, "--protocol", "v3")
    assert done.returncode == 2
    assert "--protocol" in done.stderr and "predict" in done.stderr


def test_a_job_that_the_front_end_does_not_have_is_an_error(address, tmp_path):
    done, _ = bench(address, tmp_path, "--job", "other", "--shape", "4")
    assert done.returncode == 1
    assert "HTTP 404" in done.stderr
