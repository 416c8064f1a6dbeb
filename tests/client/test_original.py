"""Programs of the original's guides, run with our client in place of the original's."""

import json
import subprocess
import sys
import textwrap
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import numpy as np
import pytest

from cluster_serving.client import RedisUnavailable, original
from cluster_serving.client.original import values
from cluster_serving.client.original.values import encode_png
from cluster_serving.launcher.config import file as config_file
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.results import encode_ranked
from tests.support.fixtures.echo import Consumer, echoed

GUIDE = """
from {package}.serving.client import InputQueue
import numpy as np
input_api = InputQueue({address})
t1 = np.array([1,2])
t2 = np.array([[1,2], [3,4]])
input_api.enqueue('my-instance', tensor1=t1, tensor2=t2)

from {package}.serving.client import OutputQueue
output_api = OutputQueue({address})
while str(result := output_api.query('my-instance')) == "[]":
    pass
all_result = output_api.dequeue() # the output queue is empty after this code

import sys
print(result, list(all_result), output_api.dequeue(), sys.argv, sys.path[0], __name__, sep="; ")
"""


def run(folder, program, *arguments):
    path = folder / "program.py"
    path.write_text(textwrap.dedent(program))
    command = [sys.executable, "-m", "cluster_serving.client.original", str(path), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("package", ["zoo", "bigdl"])
def test_a_program_of_the_guides_runs_without_an_edit(package, redis_server, echo, job, tmp_path):
    address = f"host='127.0.0.1', port='{redis_server.port}', name='{job}'"
    done = run(tmp_path, GUIDE.format(package=package, address=address), "an argument")
    assert done.returncode == 0, done.stderr
    result, uris, nothing, arguments, first_path, name = done.stdout.replace("\n", "").split("; ")
    assert result.replace(" ", "") == ("[array([1.,2.],dtype=float32),array([[1.,2.],[3.,4.]],dtype=float32)]")
    assert (uris, nothing) == ("['my-instance']", "{}")
    assert arguments == str([str(tmp_path / "program.py"), "an argument"])
    assert (first_path, name) == (str(tmp_path), "__main__")


@pytest.mark.parametrize("module", ["zoo.serving.client", "bigdl.serving.client", "zoo.serving.api"])
def test_a_star_import_gives_what_the_original_had_imported(tmp_path, module):
    program = f"""
        from {module} import *
        print(RESULT_PREFIX, [module.__name__ for module in (base64, cv2, httpx, json, np, pa, redis, time, uuid)])
        print(API, InputQueue, OutputQueue, http_json_to_ndarray, http_response_to_ndarray, perdict)
        """
    done = run(tmp_path, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cluster-serving_ ['base64', 'cv2', 'httpx', 'json', 'numpy', 'pyarrow', 'redis', ")


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ("spark:\n  master: local[*]\ndata:\n  # default, localhost:6379\n\n  src: far:6380 # ours\n", "far 6380"),
        ("model:\n  path: m\ndata:\n  src: 'far:6380'\n  filter:\nspark:\n", "far 6380"),
        ("data:\n  src:\n  image_shape: 3,8,8\nspark:\n  src: far:6380\n", "localhost 6379"),
        ("data:\n  src: far:6380\n", None),
        ("redisUrl: far:6380\n", None),
    ],
)
def test_programs_of_0_7_and_0_8_find_their_redis_by_the_file_of_the_current_folder(
    tmp_path, monkeypatch, config, found
):
    (tmp_path / "config.yaml").write_text(config)
    monkeypatch.chdir(tmp_path)
    for queue in (original.InputQueue(), original.OutputQueue()):
        assert f"{queue.host} {queue.port}" == (found or "localhost 6379")
    assert original.OutputQueue("other").host == "other"


@pytest.mark.parametrize(
    ("config", "job"),
    [
        ("model:\n  path: m\nspark:\n  master: local[*]\n", "image_stream"),
        ("model:\n  path: m\n  name: mine\nspark:\n", "mine"),
        ("model:\n  path: m\nspark:\njobName: mine\n", "mine"),
        ("model:\n  path: m\n  name: mine\n", "serving_stream"),
    ],
)
def test_a_program_beside_a_file_of_0_7_or_0_8_uses_the_job_that_the_file_starts(
    tmp_path, monkeypatch, redis_server, config, job
):
    """As in the guide between 0.8 and 0.9, whose program calls `enqueue`."""
    (tmp_path / "config.yaml").write_text(config)
    monkeypatch.chdir(tmp_path)
    if "spark" in config:
        assert config_file.read(tmp_path / "config.yaml", missing_ok=True).job_name == job
    for queue in (original.InputQueue(host="127.0.0.1", port=redis_server.port), original.OutputQueue()):
        assert queue.name == job
    assert original.InputQueue(host="127.0.0.1", port=redis_server.port, name="given").name == "given"


def test_a_missing_result_is_an_empty_object_to_programs_of_0_7_and_0_8(tmp_path, monkeypatch, redis_server, queues):
    assert queues[1].query("missing") == "[]"
    (tmp_path / "config.yaml").write_text(f"spark:\ndata:\n  src: 127.0.0.1:{redis_server.port}\n")
    monkeypatch.chdir(tmp_path)
    results = original.OutputQueue()
    assert results.query("missing") == "{}"
    assert results.dequeue() == {}


EARLY = """
from zoo.serving.client import InputQueue, OutputQueue
import json, sys
import numpy as np

InputQueue().enqueue("one", t=np.array([0.25, 3.0]))
output_api = OutputQueue()
while (result := output_api.query("one")) == "{}":
    pass
print(json.dumps([result, json.loads(result), output_api.dequeue()["one"]]))
"""


@pytest.mark.parametrize(
    ("data", "ranks", "text"),
    [
        ("  filter:\n", True, "[[8,0.9]]"),
        ("", True, '{"8":"0.9"}'),
        ("  filter: none\n", False, "[0.25,3.0]"),
    ],
)
def test_a_result_of_enqueue_is_the_text_of_the_guide_beside_a_file_of_0_7_or_0_8(
    redis_server, job, tmp_path, data, ranks, text
):
    """The guide between 0.8 and 0.9 has `enqueue`, and reads the result with `json.loads`."""
    config = f"data:\n  src: 127.0.0.1:{redis_server.port}\n{data}model:\n  name: {job}\nspark:\n"
    (tmp_path / "config.yaml").write_text(config)

    def answer(entry):
        return encode_ranked(entry.native, ["p"], [[(8, 0.9)]]) if ranks else echoed(entry)

    with Consumer(f"redis://127.0.0.1:{redis_server.port}", job, answer):
        done = run(tmp_path, EARLY)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [text, json.loads(text), text]


def test_a_program_that_does_not_exist_is_named(tmp_path):
    command = [sys.executable, "-m", "cluster_serving.client.original", "missing.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no program 'missing.py'" in done.stderr


def test_packages_beside_the_client_stay_importable(tmp_path):
    (tmp_path / "bigdl" / "serving").mkdir(parents=True)
    (tmp_path / "bigdl" / "__init__.py").write_text("real = True")
    (tmp_path / "bigdl" / "serving" / "__init__.py").write_text("")
    (tmp_path / "bigdl" / "serving" / "client.py").write_text("raise ImportError('the original')")
    (tmp_path / "bigdl" / "other.py").write_text("value = 5")
    program = """
        import bigdl, bigdl.other
        from bigdl.serving import client
        from zoo.serving.client import InputQueue
        assert client.InputQueue is InputQueue
        print(bigdl.real, bigdl.other.value)
        """
    done = run(tmp_path, program)
    assert done.stdout == "True 5\n", done.stderr


@pytest.fixture
def queues(redis_server, job):
    address = {"host": "127.0.0.1", "port": redis_server.port, "name": job}
    return original.InputQueue(**address), original.OutputQueue(**address)


def test_arguments_of_every_version_are_understood(redis_server, job):
    for queue in (
        original.InputQueue("127.0.0.1", redis_server.port),
        original.InputQueue("127.0.0.1", str(redis_server.port), True),
        original.InputQueue(host="127.0.0.1", port=redis_server.port, sync=True, frontend_url=None),
    ):
        assert (queue.host, queue.port, queue.name) == ("127.0.0.1", str(redis_server.port), "serving_stream")
    for queue in (
        original.InputQueue(sync=True, frontend_url="http://127.0.0.1:1", host="redis"),
        original.InputQueue("redis", 6379, True, "http://127.0.0.1:1"),
        original.InputQueue("http://127.0.0.1:1", host="redis"),
        original.InputQueue(frontend_url="http://127.0.0.1:1", host="redis"),
    ):
        assert (queue.frontend_url, queue.host) == ("http://127.0.0.1:1", "redis")
    assert original.InputQueue(frontend_url="front-end:10020").host == "localhost"


def test_numbers_are_float32_unless_that_would_change_them(queues, echo):
    requests, _ = queues
    for value in ([1, 2], [0.1, 0.2], [True, False]):
        answer = requests.predict({"x": np.array(value)})
        assert answer.dtype == np.float32
        np.testing.assert_array_equal(answer, np.array(value, "f4"))
    assert values.as_sent({"x": np.array([2**24 + 1])})["x"].tolist() == [2**24 + 1]
    assert values.as_sent({"x": np.array([2**53 + 1])})["x"].tolist() == [2**53 + 1]


@pytest.mark.parametrize("indices", [[[0, 1, 5], [3, 4, 6]], [[0, 3], [1, 4], [5, 6]]])
def test_indices_of_sparse_tensors_may_be_floats_with_a_row_per_dimension_or_per_value(indices):
    parts = [np.array(indices, "f4"), np.array([0.5, 1.5, 2.5]), np.array([6.0, 7.0])]
    sparse = values.as_sent({"x": parts})["x"]
    assert sparse.indices.tolist() == [[0, 1, 5], [3, 4, 6]]
    assert (sparse.indices.dtype, sparse.shape) == (np.int64, (6, 7))
    with pytest.raises(InvalidInput, match="expected integers"):
        values.as_sent({"x": [parts[0] + 0.5, *parts[1:]]})


def test_enqueue_returns_nothing_and_predict_takes_every_form(queues, echo):
    requests, _ = queues
    assert requests.enqueue("a", x=np.zeros(1)) is None
    assert requests.predict('{"instances": [{"x": [1, 2]}]}').tolist() == [1, 2]
    assert requests.predict(np.ones(2)).tolist() == [1, 1]
    assert [array.tolist() for array in requests.predict({"x": np.ones(1), "y": np.zeros(1)})] == [[1], [0]]


def test_what_cannot_be_sent_raises_and_what_cannot_be_computed_is_nan(queues, db, job):
    requests, results = queues
    with pytest.raises(InvalidInput, match="no/such"):
        requests.enqueue("a", image="no/such.jpg")
    with pytest.raises(InvalidInput, match="expected an image"):
        requests.predict({"image": {"path": np.zeros((3, 4, 5))}})
    db.hset(f"cluster-serving_{job}:bad", mapping={"value": "NaN", "code": "INVALID_INPUT", "error": "why"})
    assert results.query("bad") == "NaN"
    assert results.dequeue() == {"bad": "NaN"}


def test_a_redis_that_is_away_is_no_answer():
    with pytest.raises(RedisUnavailable):
        original.OutputQueue(port=1).query("a")


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 3), (5, 7, 4)])
def test_pixels_are_sent_without_loss(shape):
    cv2 = pytest.importorskip("cv2")
    pixels = np.random.default_rng(0).integers(0, 256, shape, "u1")
    for sent in (pixels, pixels.astype("f4")):
        decoded = cv2.imdecode(np.frombuffer(encode_png("x", sent).data, "u1"), cv2.IMREAD_UNCHANGED)
        np.testing.assert_array_equal(decoded, pixels.squeeze())


class FrontEnd(BaseHTTPRequestHandler):
    """Answers a prediction with the body it was asked with, wrapped as the original wraps it."""

    def do_POST(self):
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        body = json.dumps({"predictions": [f"{{value={asked}}}"], "path": self.path}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Print nothing."""


def test_predict_asks_the_front_end_if_there_is_one():
    with HTTPServer(("127.0.0.1", 0), FrontEnd) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            queue = original.InputQueue(sync=True, frontend_url=f"http://127.0.0.1:{server.server_port}")
            assert queue.predict('{"instances": []}') == '{"instances": []}'
        finally:
            server.shutdown()
            thread.join()


def test_responses_of_a_front_end_become_arrays():
    value = json.dumps({"data": [1, 2, 3, 4], "shape": [2, 2]})
    text = json.dumps({"predictions": [json.dumps({"value": value})]})
    assert original.http_json_to_ndarray(text).tolist() == [[1, 2], [3, 4]]
    assert original.http_response_to_ndarray(SimpleNamespace(status_code=200, text=text)).shape == (2, 2)
    assert original.http_response_to_ndarray(SimpleNamespace(status_code=400, text="")) == "[]"


@pytest.mark.parametrize(
    ("prediction", "expected"),
    [
        ("{value=data=[1.0,2.5],shape=[2];}", [1.0, 2.5]),
        ("{value=data=[1.0,1.0E-5],shape=[1,2];data=[3.0],shape=[1];}", [[[1.0, 1e-5]], [3.0]]),
        ('{"value":"{\\"data\\":[1.0],\\"shape\\":[1]}{\\"data\\":[2.0],\\"shape\\":[1]}"}', [[1.0], [2.0]]),
        ("{value=[[8,0.9][3,0.1]]}", [[8, 0.9], [3, 0.1]]),
        ('{"value":"[[8,0.9]]"}', [[8, 0.9]]),
        ("{value=NaN}", "NaN"),
        ('{"value":"NaN"}', "NaN"),
        ({"value": [1.0, 2.5]}, [1.0, 2.5]),
        ({"value": {"a": [1.0], "b": [2.0]}}, [[1.0], [2.0]]),
        ({"value": [{"class": 8, "prob": 0.9}]}, [[8, 0.9]]),
        ({"error": "no model", "code": "MODEL_ERROR"}, "NaN"),
        ([1.0, 2.5], [1.0, 2.5]),
    ],
)
def test_predictions_of_every_front_end_become_arrays(prediction, expected):
    response = SimpleNamespace(status_code=200, text=json.dumps({"predictions": [prediction]}))
    found = original.http_response_to_ndarray(response)
    assert (
        found
        if isinstance(found, str)
        else [each.tolist() for each in found]
        if isinstance(found, list)
        else found.tolist()
    ) == expected


def test_results_of_the_oldest_clients_may_have_any_name(queues, db):
    _, results = queues
    db.hset(b"result:\xff", "value", "[1]")
    db.hset("result:of-another-program", "field", "1")
    try:
        assert results.dequeue() == {"\udcff": "[1]"}
        assert not db.exists(b"result:\xff")
        assert db.exists("result:of-another-program")
    finally:
        db.delete(b"result:\xff", "result:of-another-program")
