"""The clients of the original in front of our HTTP server."""

import json
import subprocess
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from cluster_serving.client import InputQueue, OutputQueue
from cluster_serving.frontend import arguments
from cluster_serving.protocol.keys import JOBS_KEY, JobKeys
from cluster_serving.protocol.slots import SlotReport, TensorSpec
from tests.support.fixtures.front_end import Running
from tests.support.fixtures.waiting import PAUSE_S
from tests.support.payloads import model_zoo
from tests.support.programs.originals import ORIGINALS

PROGRAM = """
    import json, sys
    from bigdl.serving.client import InputQueue, http_response_to_ndarray
    import httpx

    url, body = sys.argv[1:]
    queue = InputQueue(frontend_url=url + "/zoo-0.9")
    text = queue.predict(body)
    array = http_response_to_ndarray(httpx.post(url + "/bigdl/predict", data=body))
    plain = InputQueue(frontend_url=url).predict(body)
    print("found " + json.dumps([text, array.tolist(), plain]))
"""


@pytest.fixture
def start():
    """Starts a front end, and returns its URL."""
    running = []

    def start(port, job):
        words = [f"--redisUrl=redis://127.0.0.1:{port}", f"--redisInputQueue={job}", "--port=0", "--grpcPort=0"]
        running.append(Running(arguments.read(words, {})))
        return running[-1].url

    yield start
    for front in running:
        front.stop()


def test_the_published_client_reads_our_answers_unmodified(start, digits, original_python, tmp_path):
    front_end = start(*digits)
    digit = model_zoo.digits_data()[0][0]
    body = json.dumps({"instances": [{"x": digit.tolist()}]})
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    done = subprocess.run(
        [original_python, program, front_end, body],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text, array, plain = json.loads(done.stdout.rpartition("found ")[2])
    # The client cuts the first brace off, as it did from the texts of its own server.
    assert json.loads(json.loads(f"{{{plain}}}")["value"])["data"] == array
    expected = model_zoo.digits_mlp(digit[np.newaxis])[0]
    np.testing.assert_allclose(array, expected, atol=0.02)
    numbers = text.partition("data=[")[2].partition("]")[0].split(",")
    np.testing.assert_allclose([float(number) for number in numbers], expected, atol=0.02)


@pytest.mark.usefixtures("echo")
@pytest.mark.parametrize("client", ORIGINALS, indirect=True)
def test_an_original_client_gets_all_of_its_results_beside_other_clients(run, redis_server, db, job, start):
    vector = TensorSpec("x", "float32", (None, None))
    db.sadd(JOBS_KEY, job)
    db.hset(JobKeys(job).slots(), "0", SlotReport("", "ready", "Echo", (vector,), (vector,)).to_json())
    url = start(redis_server.port, job)
    stopped = threading.Event()
    kept = []

    def others():
        while not stopped.wait(PAUSE_S):
            kept.append(requests.enqueue(f"kept {len(kept)}", x=np.ones(3)))
            assert requests.predict({"x": np.ones(3)}, timeout=30).tolist() == [1, 1, 1]
            answer = httpx.post(f"{url}/predict", json={"instances": [{"x": [2, 2]}]}, timeout=30)
            assert answer.json() == {"predictions": [{"value": [2, 2]}]}

    with (
        InputQueue(port=redis_server.port, name=job) as requests,
        OutputQueue(port=redis_server.port, name=job) as results,
    ):
        with ThreadPoolExecutor() as pool:
            running = pool.submit(others)
            try:
                found = run(
                    redis_server.port,
                    job,
                    """
                    taken = {}
                    for number in range(200):
                        requests.enqueue(str(number), x=np.full(2, number))
                        if number % 20 == 0:
                            taken.update(results.dequeue())
                    deadline = time.time() + 30
                    while len(taken) < 200 and time.time() < deadline:
                        taken.update(results.dequeue())
                    answers["wrong"] = [uri for uri in map(str, range(200)) if taken[uri].tolist() != [int(uri)] * 2]
                    """,
                )
            finally:
                stopped.set()
            running.result(60)
        assert found["wrong"] == []
        assert all(results.query_and_delete(uri, timeout=30).tolist() == [1, 1, 1] for uri in kept)
    db.srem(JOBS_KEY, job)
    db.delete(JobKeys(job).slots())
