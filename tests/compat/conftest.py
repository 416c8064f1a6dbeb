"""Programs written for the original's client, run with that client itself and with ours under its name."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tests.support import model_zoo
from tests.support.environments import python_with

# The libraries of the last clients' time: on later ones part of those clients fails by itself.
LIBRARIES = ["redis==4.6.0", "pyarrow==10.0.1", "numpy==1.23.5", "httpx==0.13.3", "opencv-python-headless==4.7.0.72"]
ORIGINALS = ["bigdl-serving==2.4.0", "analytics-zoo-serving==0.11.2"]

OURS = "ours by the original's name"
CLIENTS = {ORIGINALS[0]: "bigdl", ORIGINALS[1]: "zoo", OURS: "bigdl"}
"""Client → package that programs import it from."""

PROLOGUE = """
import json, sys, time
import numpy as np
from {package}.serving.client import InputQueue, OutputQueue

port, job = int(sys.argv[1]), sys.argv[2]
given = json.loads(sys.argv[3])
requests, results = InputQueue(host="127.0.0.1", port=port, name=job), OutputQueue(port=port, name=job)
answers = {{}}

def is_missing(answer):
    return isinstance(answer, str) and answer == "[]"

def wait(uri):
    deadline = time.time() + 30
    while is_missing(answer := results.query(uri)) and time.time() < deadline:
        time.sleep(0.01)
    return answer
"""

EPILOGUE = """
def as_json(value):
    return {"dtype": value.dtype.name, "shape": list(value.shape), "values": value.ravel().tolist()}

with open(sys.argv[4], "w") as file:
    json.dump(answers, file, default=as_json)
"""


@pytest.fixture(scope="session")
def original_python():
    """Python of an environment that holds the original's clients as they were published; made once."""
    # Without their dependencies, which ask for a second OpenCV.
    return python_with("compat-original", LIBRARIES, ["--no-deps", *ORIGINALS])


@pytest.fixture(params=CLIENTS)
def client(request):
    """Which client runs the program of a test."""
    return request.param


@pytest.fixture
def run(client, original_python, tmp_path):
    """Runs the body of a program; it finds queues as `requests` and `results`, and leaves its findings in `answers`."""

    def run(port, job, body, **given):
        program, findings = tmp_path / "program.py", tmp_path / "findings.json"
        prologue = PROLOGUE.format(package=CLIENTS[client])
        program.write_text(prologue + textwrap.dedent(body) + EPILOGUE)
        ours = [sys.executable, "-m", "cluster_serving.client.original"]
        command = [*(ours if client == OURS else [original_python]), program, str(port), job, json.dumps(given)]
        done = subprocess.run(
            [*command, findings], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(findings.read_text(), object_hook=_revived)

    return run


def _revived(value):
    return np.array(value["values"], value["dtype"]).reshape(value["shape"]) if "dtype" in value else value


@pytest.fixture(scope="module")
def serve(cluster, tmp_path_factory):
    """Starts a job when the first test of a module needs it; each holds a task slot until the module is done."""
    started = set()

    def serve(name, save, **settings):
        if name not in started:
            folder = tmp_path_factory.mktemp(name)
            save(folder)
            done = cluster.start(jobName=name, modelPath=folder, **settings)
            assert done.returncode == 0, done.stdout + done.stderr
            started.add(name)
        return cluster.redis_port, name

    yield serve
    for name in started:
        cluster.stop(name)


@pytest.fixture
def digits(serve):
    return serve("compat-digits", model_zoo.save_openvino_digits)


@pytest.fixture
def batched_digits(serve):
    return serve("compat-batched", model_zoo.save_openvino_digits, inputAlreadyBatched=True)


@pytest.fixture
def images(serve):
    return serve("compat-images", model_zoo.save_openvino_digit_images, imageResize="8,8")


@pytest.fixture
def ranked_images(serve):
    return serve("compat-ranked", model_zoo.save_openvino_digit_images, imageResize="8,8", postProcessing="topN(3)")


@pytest.fixture
def encrypted_images(serve):
    settings = {"imageResize": "8,8", "recordEncrypted": True, "recordKey": "published"}
    return serve("compat-encrypted", model_zoo.save_openvino_digit_images, **settings)


@pytest.fixture
def image_stream(serve):
    return serve("image_stream", model_zoo.save_openvino_digit_images, imageResize="8,8", postProcessing="topN(3)")


@pytest.fixture
def words(serve):
    return serve("compat-words", save_words)


@pytest.fixture
def mixed(serve):
    return serve("compat-mixed", save_mixed)


def save_words(folder):
    """`words` str [?, ?] → `lengths` int32 [?, ?]."""
    import tensorflow as tf

    model_zoo.save_savedmodel(
        folder,
        lambda words: {"lengths": tf.strings.length(words)},
        tf.TensorSpec([None, None], tf.string, "words"),
    )


def save_mixed(folder):
    """`a` float32 [?, 2], `b` int64 [?, 2, 2], `c` float32 [?, 6, 7] → twice a, the sum of b, the rows' sums of c."""
    import tensorflow as tf

    def function(a, b, c):
        return {"p": a * 2, "q": tf.reduce_sum(b, [1, 2]), "r": tf.reduce_sum(c, 2)}

    model_zoo.save_savedmodel(
        folder,
        function,
        tf.TensorSpec([None, 2], tf.float32, "a"),
        tf.TensorSpec([None, 2, 2], tf.int64, "b"),
        tf.TensorSpec([None, 6, 7], tf.float32, "c"),
    )


def digit_pixels(count):
    """Digits as grey images of 32 x 32 pixels, and their labels."""
    x, labels = model_zoo.digits_data()
    pixels = np.round(x[:count].reshape(-1, 8, 8) * 255).astype("u1").repeat(4, 1).repeat(4, 2)
    return pixels, labels[:count]
