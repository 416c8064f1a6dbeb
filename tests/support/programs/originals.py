"""Programs for the original's client, and the models of the jobs that they talk to."""

import json
import subprocess
import sys
import textwrap

import numpy as np

from tests.support.payloads import model_zoo

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


def run_program(client, original_python, folder, port, job, body, given):
    """Run the body of a program and return its findings.

    Args:
        client: Key of `CLIENTS`.
        original_python: Python that has the original's clients.
        folder: Folder for the program.
        port: Port of Redis.
        job: Name of the job.
        body: Code that finds queues as `requests` and `results`, and leaves its findings in `answers`.
        given: Values that the code finds as `given`.
    """
    program, findings = folder / "program.py", folder / "findings.json"
    program.write_text(PROLOGUE.format(package=CLIENTS[client]) + textwrap.dedent(body) + EPILOGUE)
    ours = [sys.executable, "-m", "cluster_serving.client.original"]
    command = [*(ours if client == OURS else [original_python]), program, str(port), job, json.dumps(given), findings]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(findings.read_text(), object_hook=_revived)


def _revived(value):
    return np.array(value["values"], value["dtype"]).reshape(value["shape"]) if "dtype" in value else value


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
