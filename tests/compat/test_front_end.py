"""The clients of the original in front of our HTTP server."""

import json
import subprocess
import textwrap

import numpy as np
import pytest

from cluster_serving.frontend import arguments
from tests.support import model_zoo
from tests.support.front_end import Running

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
