"""A front end of several processes, started as `cluster-serving-http --workers 3`."""

import asyncio
import collections
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager, suppress

import httpx
import numpy as np
import psutil
import pytest

from cluster_serving.frontend.errors import StartError
from cluster_serving.frontend.server.processes.workers import Workers
from cluster_serving.protocol.keys import NORMAL, JobKeys
from cluster_serving.protocol.results import encode_result
from tests.support.fixtures.commands import BIN
from tests.support.fixtures.echo import answering
from tests.support.fixtures.front_end import accepts
from tests.support.fixtures.tls import write_certificates
from tests.support.fixtures.waiting import wait_until

BODY = json.dumps({"instances": [{"x": [1, 2]}]}).encode()
PLAIN = {"accept": "text/plain"}


class Launched:
    """A front end with three processes; `processes` has the first one, then the others."""

    def __init__(self, process, urls):
        self.process, self.urls = psutil.Process(process.pid), urls

    @property
    def url(self):
        return self.urls[0]

    @property
    def workers(self):
        return self.process.children()

    def connections(self):
        """Return the number of clients of each process."""
        port = int(self.url.rpartition(":")[2])
        return [
            sum(found.laddr.port == port and found.status == "ESTABLISHED" for found in process.net_connections())
            for process in (self.process, *self.workers)
        ]


@pytest.fixture
def launch(redis_server, job, vectors):
    with ExitStack() as stack:

        def launch(*options, cwd=None):
            command = [
                *(BIN / "cluster-serving-http", "--workers=3", f"--redisUrl={redis_server.url}"),
                *(f"--redisInputQueue={job}", "--port=0", "--securePort=0", "--grpcPort=0", "--drainSeconds=0"),
            ]
            process = stack.enter_context(
                subprocess.Popen(
                    [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd
                )
            )
            stack.callback(process.kill)
            line = process.stdout.readline()
            assert line, process.stderr.read()
            return Launched(process, line.split(" at ")[1].strip().split(" and "))

        yield launch


@contextmanager
def clients(launched, count, **options):
    options |= {"timeout": 60, "limits": httpx.Limits(keepalive_expiry=None)}
    with ExitStack() as stack:
        yield [stack.enter_context(httpx.Client(base_url=launched.url, **options)) for _ in range(count)]


def predict(client):
    return client.post("/predict", content=BODY)


def requests_counted(client):
    """Return the number of predictions that the metrics tell, in both formats."""
    lines = client.get("/metrics", headers=PLAIN).text.splitlines()
    counts = [line.split()[1] for line in lines if "requests_total{" in line and 'protocol="original"' in line]
    count = timed(client)
    assert count == sum(map(float, counts))
    return count


def timed(client):
    (timer,) = (row for row in client.get("/metrics").json() if row["name"] == "zoo.serving.request.predict")
    return timer["count"]


def test_each_process_gets_as_many_connections_and_any_tells_the_metrics_of_all(launch, echo):
    launched = launch()
    with clients(launched, 9) as asking:
        for number, client in enumerate(asking, 1):
            assert predict(client).json()["predictions"]
            assert sum(launched.connections()) == number
        assert launched.connections() == [3, 3, 3]
        assert {requests_counted(client) for client in asking} == {9}
        # The place of a client that has left is taken by the next one.
        for client in asking[:3]:
            client.close()
        wait_until(lambda: sum(launched.connections()) == 6)
        with clients(launched, 3) as others:
            for client in others:
                predict(client)
            assert launched.connections() == [3, 3, 3]


def test_a_worker_that_dies_is_started_again_and_its_requests_still_count(launch, echo):
    launched = launch()
    with clients(launched, 3) as asking, ExitStack() as more:
        for client in asking:
            predict(client)
        assert requests_counted(asking[0]) == 3
        victim = launched.workers[0]
        victim.kill()
        failed = [client for client in asking if not _is_answered(client)]
        assert len(failed) == 1
        kept = next(client for client in asking if client not in failed)
        assert requests_counted(kept) == 5
        answered = 5

        def is_serving_again():
            nonlocal answered
            (client,) = more.enter_context(clients(launched, 1))
            assert predict(client).is_success
            answered += 1
            return len(launched.workers) == 2 and min(launched.connections()) > 0

        wait_until(is_serving_again)
        assert victim not in launched.workers
        assert requests_counted(kept) == answered


def test_a_worker_that_is_started_again_has_the_options_of_the_first_process(launch, echo, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("http:\n  maxInstances: 1\n")
    launched = launch(f"--config-path={file}")
    file.write_text("http:\n  maxInstances: wrong\n")
    for worker in launched.workers:
        worker.kill()
        # Until the first process has taken note, it gives connections to a worker that is dead.
        worker.wait(30)
    body = json.dumps({"instances": [{"x": [1, 2]}] * 2}).encode()

    def refusals():
        with clients(launched, 6) as asking:
            answers = [client.post("/predict", content=body) for client in asking]
            return min(launched.connections()) > 0, {answer.status_code for answer in answers}

    wait_until(lambda: refusals() == (True, {413}))


def test_the_metrics_do_not_wait_for_a_worker_that_hangs(launch, echo):
    launched = launch()
    with clients(launched, 3) as asking:
        for client in asking:
            predict(client)
        assert requests_counted(asking[0]) == 3
        with ExitStack() as stopped:
            for worker in launched.workers:
                worker.suspend()
                stopped.callback(worker.resume)
            # Of its own answers the first process knows more.
            counts = []
            for client in asking:
                with suppress(httpx.ReadTimeout):
                    client.timeout = 5
                    predict(client)
                    counts.append(requests_counted(client))
            assert counts == [4]
        with clients(launched, 1) as (client,):
            wait_until(lambda: timed(client) == 6)
            assert requests_counted(client) == 6


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python has no -P")
def test_files_of_the_current_folder_shadow_no_package(launch, echo, tmp_path):
    (tmp_path / "redis.py").write_text("raise SystemExit('the wrong redis.py')")
    launched = launch("--workers=2", cwd=tmp_path)
    with clients(launched, 2) as asking:
        assert all(predict(client).is_success for client in asking)


def _is_answered(client):
    try:
        return predict(client).is_success
    except httpx.TransportError:
        return False


def test_limits_hold_for_all_processes_together(launch, echo):
    launched = launch("--tokenBucketEnabled=true", "--tokensPerSecond=0.1", "--tokenAcquireTimeout=0")
    with clients(launched, 4) as asking:
        statuses = [predict(client) for client in asking]
    assert [answer.status_code for answer in statuses] == [200, 429, 429, 429]
    assert statuses[-1].json()["error"] == "more than 0.1 requests a second (tokensPerSecond)"
    assert int(statuses[-1].headers["retry-after"]) >= 8
    launched = launch("--maxConnections=5")
    with clients(launched, 7) as asking:
        answers = [predict(client).status_code for client in asking]
    # Two for each process.
    assert collections.Counter(answers) == {200: 6, 503: 1}


def test_a_request_may_have_more_instances_than_a_process_has_places(launch, echo):
    launched = launch("--parallelism=300")
    with clients(launched, 1) as (client,):
        answer = client.post("/predict", json={"instances": [{"x": [1, 2]}] * 1000})
        assert len(answer.json()["predictions"]) == 1000


def test_connections_with_tls_are_spread_too(launch, echo, tmp_path):
    write_certificates(tmp_path)
    files = [f"--https{name}Path={tmp_path}/server.pem" for name in ("Certificate", "PrivateKey")]
    launched = launch("--httpsEnabled=true", "--plainHttpEnabled=false", *files)
    with clients(launched, 6, verify=ssl.create_default_context(cafile=tmp_path / "ca.pem")) as asking:
        assert all(predict(client).is_success for client in asking)
        assert launched.connections() == [2, 2, 2]
        # Not TLS: the place is free again.
        with clients(launched, 3) as plain:
            for client in plain:
                client.base_url = launched.url.replace("https", "http")
                with pytest.raises(httpx.TransportError):
                    predict(client)
        with clients(launched, 3, verify=False) as others:
            assert all(predict(client).is_success for client in others)
            assert launched.connections() == [3, 3, 3]


@contextmanager
def asked(launched, db, job):
    """Ask each process something that is answered when the event is set. Yield the event, and the answers to come."""
    released, answers = threading.Event(), [None] * 3

    def answer(entry):
        assert released.wait(60)
        return encode_result(entry.native, ["x"], [np.ones(2)])

    def ask(index):
        with suppress(httpx.TransportError):
            answers[index] = predict(asking[index])

    with answering(db, job, answer), clients(launched, 3) as asking:
        threads = [threading.Thread(target=ask, args=(index,)) for index in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: launched.connections() == [1, 1, 1] and db.xlen(JobKeys(job).stream(NORMAL)) == 3)
        yield released, answers
        released.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_processes_ends_them_after_their_last_answers(launch, db, job, number):
    launched = launch()
    processes = [launched.process, *launched.workers]
    with asked(launched, db, job) as (released, answers):
        for process in processes:
            process.send_signal(number)
        wait_until(lambda: not accepts(launched.url))
        assert answers == [None] * 3
        released.set()
    assert [(answer.status_code, answer.headers["connection"]) for answer in answers] == [(200, "close")] * 3
    _, alive = psutil.wait_procs(processes, 30)
    assert alive == []


def test_a_second_ctrl_c_waits_for_no_answer(launch, db, job):
    launched = launch()
    processes = [launched.process, *launched.workers]
    with asked(launched, db, job) as (_, answers):
        launched.process.send_signal(signal.SIGINT)
        wait_until(lambda: not accepts(launched.url))
        launched.process.send_signal(signal.SIGINT)
        _, alive = psutil.wait_procs(processes, 15)
        assert alive == []
    assert not any(answer and answer.is_success for answer in answers)


def test_no_worker_outlives_the_first_process(launch):
    launched = launch()
    workers = launched.workers
    launched.process.kill()
    _, alive = psutil.wait_procs(workers, 30)
    assert alive == []


def test_a_worker_that_cannot_start_is_told():
    workers = Workers(2, [sys.executable, "-c", f"import os; os._exit({os.EX_CONFIG})"])
    with pytest.raises(StartError, match="a worker of the front end ended with exit code 78 before it served"):
        asyncio.run(workers.start())


def test_a_command_that_cannot_be_run_is_told():
    with pytest.raises(
        StartError, match=r"a worker of the front end could not be started \(No such file or directory\)"
    ):
        asyncio.run(Workers(1, ["/nowhere/python"]).start())
