"""Stopping."""

import json
import signal
import subprocess
import sys
import threading

import grpc
import httpx
import pytest

from cluster_serving.frontend.proto import inference
from tests.support.fixtures.echo import failing
from tests.support.fixtures.front_end import accepts
from tests.support.fixtures.grpc_calls import caller
from tests.support.fixtures.waiting import wait_until

BODY = json.dumps({"instances": [{"x": [1, 2]}, {"x": [3, 4]}]})


def test_what_was_accepted_is_answered_before_the_process_ends(redis_server, report, db, job):
    report(("x", "float32", (None, None)))
    command = [
        sys.executable,
        "-m",
        "cluster_serving.frontend.main",
        f"--redisUrl={redis_server.url}",
        "--port=0",
        "--grpcEnabled=false",
    ]
    with subprocess.Popen([*command, f"--redisInputQueue={job}"], stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().split()[-1]
        answers = []
        thread = threading.Thread(target=lambda: answers.append(httpx.post(f"{url}/predict", content=BODY, timeout=30)))
        thread.start()
        wait_until(lambda: db.xlen(job) == 2)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: not accepts(url))
        with failing(db, job):
            thread.join()
        assert process.wait(30) in (0, -signal.SIGTERM)
    assert [prediction["code"] for prediction in answers[0].json()["predictions"]] == ["INTERNAL"] * 2


def test_what_clients_do_wrong_over_grpc_is_no_line_of_the_log(redis_server, job):
    command = [sys.executable, "-m", "cluster_serving.frontend.main", f"--redisUrl={redis_server.url}", "--port=0"]
    command += ["--grpcPort=0", f"--models={job}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().split("grpc://")[1].strip()
        with grpc.insecure_channel(address) as channel:
            live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
            with pytest.raises(grpc.RpcError, match="'gzip' is disabled"):
                live(b"sent", compression=grpc.Compression.Gzip, timeout=60)
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60)[1] == ""


@pytest.mark.usefixtures("echo")
def test_a_draining_front_end_is_not_ready_but_answers_and_asks_its_clients_to_leave(redis_server, report, job):
    report(("x", "float32", (None, None)))
    command = [sys.executable, "-m", "cluster_serving.frontend.main", f"--redisUrl={redis_server.url}", "--port=0"]
    command += ["--grpcPort=0", f"--models={job}", "--drainSeconds=1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        http, grpc_ = (address for address in process.stdout.readline().split() if "://" in address)
        with (
            httpx.Client(base_url=http, timeout=30) as ask,
            grpc.insecure_channel(grpc_.partition("://")[2]) as channel,
        ):
            call = caller(channel, "inference.GRPCInferenceService")
            infer = ("ModelInfer", inference.ModelInferRequest(model_name=job, raw_input_contents=[bytes(8)]))
            infer[1].inputs.add(name="x", datatype="FP32", shape=[1, 2])
            ready = ("ServerReady", inference.ServerReadyRequest(), inference.ServerReadyResponse)
            assert "connection" not in ask.post("/predict", content=BODY).headers
            assert call(*ready).ready
            process.send_signal(signal.SIGTERM)
            wait_until(lambda: httpx.get(f"{http}/health/ready", timeout=30).status_code == 503)
            assert "stopping" in httpx.get(f"{http}/health/ready").json()["error"]
            answer = ask.post("/predict", content=BODY)
            assert (answer.status_code, answer.headers["connection"]) == (200, "close")
            assert not call(*ready).ready
            assert call(*infer, inference.ModelInferResponse).model_name == job
            # Ctrl-C ends the drain.
            process.send_signal(signal.SIGINT)
            assert process.wait(30) != 0


@pytest.mark.usefixtures("echo")
def test_a_stop_resets_no_connection_that_was_made(redis_server, report, job):
    report(("x", "float32", (None, None)))
    command = [sys.executable, "-m", "cluster_serving.frontend.main", f"--redisUrl={redis_server.url}", "--port=0"]
    command += ["--grpcPort=0", f"--models={job}", f"--redisInputQueue={job}", "--drainSeconds=2"]
    outcomes = []

    def ask(url):
        with httpx.Client(timeout=60) as client:
            while httpx.ConnectError not in outcomes[-16:]:
                try:
                    outcomes.append(client.post(f"{url}/predict", content=BODY).status_code)
                except httpx.TransportError as error:
                    outcomes.append(type(error))

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        url = next(word for word in process.stdout.readline().split() if word.startswith("http:"))
        threads = [threading.Thread(target=ask, args=(url,)) for _ in range(16)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(outcomes) > 100)
        process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
    assert set(outcomes) == {200, httpx.ConnectError}


def test_a_server_without_redis_says_what_it_waits_for():
    command = [sys.executable, "-m", "cluster_serving.frontend.main", "--redisUrl=localhost:1", "--port=0"]
    command += ["--grpcEnabled=false"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().split()[-1]
        said = process.stderr.readline()
        answer = httpx.get(f"{url}/health/ready", timeout=60)
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert (answer.status_code, answer.json()["ready"]) == (503, False)
    assert "requests get 503" in said
    assert answer.json()["error"] in said
