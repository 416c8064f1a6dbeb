"""The clients of the original in front of our HTTP server."""

import json
import subprocess
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from cluster_serving.client import InputQueue, InvalidInput, OutputQueue
from cluster_serving.frontend import arguments
from tests.support import model_zoo
from tests.support.front_end import Running
from tests.support.originals import ORIGINALS

PROGRAM = """
    import json, sys
    from bigdl.serving.client import InputQueue, http_response_to_ndarray
    import httpx

    url, body = sys.argv[1:]
    queue = InputQueue(frontend_url=url + "/zoo-0.9")
    text = queue.predict(body)
    array = http_response_to_ndarray(httpx.post(url + "/bigdl/predict", data=body))
    print("found " + json.dumps([text, array.tolist()]))
"""


@pytest.fixture
def front_end(digits):
    port, job = digits
    words = [f"--redisUrl=redis://127.0.0.1:{port}", f"--redisInputQueue={job}", "--port=0"]
    running = Running(arguments.read(words, {}))
    yield running.url
    running.stop()


def test_the_published_client_reads_our_answers_unmodified(front_end, original_python, tmp_path):
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
    text, array = json.loads(done.stdout.rpartition("found ")[2])
    expected = model_zoo.digits_mlp(digit[np.newaxis])[0]
    np.testing.assert_allclose(array, expected, atol=0.02)
    numbers = text.partition("data=[")[2].partition("]")[0].split(",")
    np.testing.assert_allclose([float(number) for number in numbers], expected, atol=0.02)


@pytest.mark.parametrize("client", ORIGINALS, indirect=True)
def test_an_original_client_gets_all_of_its_results_beside_other_clients(run, digits, front_end):
    port, job = digits
    digit = model_zoo.digits_data()[0][0]
    stopped = threading.Event()
    kept = []

    def others():
        while not stopped.is_set():
            kept.append(requests.enqueue(f"kept {len(kept)}", x=digit))
            with pytest.raises(InvalidInput):
                requests.predict({"x": digit[:3]}, timeout=30)
            assert httpx.post(f"{front_end}/predict", json={"instances": [{"x": digit.tolist()}]}).is_success

    with InputQueue(port=port, name=job) as requests, OutputQueue(port=port, name=job) as results:
        with ThreadPoolExecutor() as pool:
            running = pool.submit(others)
            try:
                found = run(
                    *digits,
                    """
                    taken = {}
                    for number in range(200):
                        requests.enqueue(str(number), x=np.array(given["x"]))
                        if number % 20 == 0:
                            taken.update(results.dequeue())
                    deadline = time.time() + 30
                    while len(taken) < 200 and time.time() < deadline:
                        taken.update(results.dequeue())
                    answers["uris"] = list(taken)
                    """,
                    x=digit.tolist(),
                )
            finally:
                stopped.set()
            running.result(60)
        assert sorted(map(int, found["uris"])) == list(range(200))
        assert all(results.query_and_delete(uri, timeout=30).shape == (10,) for uri in kept)
