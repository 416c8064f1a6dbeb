"""`cluster-serving-cli try` and `cluster-serving-init --handler`: the loop in which a handler is written."""

import json
import os
import subprocess
import sys

import cv2
import numpy as np
import pytest

from cluster_serving.job.handlers import InvalidInput
from cluster_serving.job.models.base import TensorSpec
from cluster_serving.job.options import JobOptions, ModelOptions, RedisOptions
from cluster_serving.job.programs.dev_runner import await_change, read_inputs
from cluster_serving.protocol.inputs import Image
from tests.support.fixtures.commands import run
from tests.support.fixtures.handled import write


def command(folder, name, *arguments):
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(folder / "state"), "COLUMNS": "200"}
    return run(name, *arguments, cwd=folder, environment=environment)


def test_the_template_runs_and_so_does_its_test(tmp_path):
    made = command(tmp_path, "cluster-serving-init", "--handler")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "model" / "handler.py").is_file()
    tried = command(tmp_path, "cluster-serving-cli", "try", "--input", "x=[1, 2, 3]")
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert tried.stdout.startswith("Python handler (handler:Handler): x: float32[?, 3] → y: float32[?, 3], about: str")
    assert "y: float32[3] [4., 6., 8.]\nabout: 'the sum is 18'\n" in tried.stdout
    # Without inputs it is zeros, and the folder may be named.
    assert "the sum is 6" in command(tmp_path, "cluster-serving-cli", "try", "model").stdout
    refused = command(tmp_path, "cluster-serving-cli", "try", "--input", "x=[-1, 2, 3]")
    assert refused.returncode == 1
    assert refused.stdout.endswith("INVALID_INPUT: x has negative numbers\n")
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "model"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in tests.stdout, tests.stdout
    mine = tmp_path / "model" / "handler.py"
    mine.write_text("mine")
    assert "exists already" in command(tmp_path, "cluster-serving-init", "--handler").stderr
    assert mine.read_text() == "mine"


def test_a_failure_shows_the_whole_stack_and_a_saved_file_runs_again(tmp_path):
    write(tmp_path, "class Handler:\n  def predict(self, batch):\n    return {'y': batch['x'] / self.missing}")
    options = JobOptions("start", ModelOptions(str(tmp_path)), RedisOptions("redis://localhost"))
    given = {"options": options.to_json(), "inputs": ["x=[1.0]"], "watch": True}
    with subprocess.Popen(
        [sys.executable, "-m", "cluster_serving.job.programs.dev_runner"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:

        def until_waiting():
            lines = []
            while not lines or not lines[-1].startswith("Waiting for a change"):
                lines.append(process.stdout.readline())
                assert lines[-1], lines
            return "".join(lines)

        process.stdin.write(json.dumps(given))
        process.stdin.close()
        shown = until_waiting()
        assert "handler.py\", line 3, in predict\n    return {'y': batch['x'] / self.missing}" in shown
        assert "INFERENCE_FAILED: the handler failed in predict: AttributeError" in shown
        write(tmp_path, "class Handler:\n  def load(self, context):\n    1 / 0")
        assert "line 3, in load\n    1 / 0\n" in until_waiting()
        write(tmp_path, "class Handler:\n  def predict(self, batch):\n    return {'y': [{'a': 1}]}")
        assert "y: {'a': 1}" in until_waiting()
        process.terminate()


def test_a_damaged_model_is_named_without_a_stack_of_the_engine(tmp_path):
    (tmp_path / "model.onnx").write_text("junk")
    ran = command(tmp_path, "cluster-serving-cli", "try", ".")
    assert (ran.returncode, ran.stdout.count("\n")) == (1, 1)
    assert ran.stdout.startswith("MODEL_ERROR: ") and "model.onnx is not an ONNX model" in ran.stdout
    assert "Traceback" not in ran.stdout + ran.stderr


def test_a_file_that_is_being_written_is_waited_for(tmp_path):
    path = tmp_path / "handler.py"
    old, emptied, half, whole = ({path: (time, size)} for time, size in [(1, 90), (2, 0), (3, 40), (4, 80)])
    snapshots = iter([old, old, emptied, half, whole, whole, half])
    await_change(snapshots, old)
    assert list(snapshots) == [half]
    # Written, and taken back before it was seen twice.
    snapshots = iter([whole, old, old, half, half])
    await_change(snapshots, old)
    assert list(snapshots) == []


def test_inputs_are_json_texts_or_files(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    (tmp_path / "t.txt").write_text("two\nlines")
    (tmp_path / "j.json").write_text("[[1, 2]]")
    (tmp_path / "i.png").write_bytes(cv2.imencode(".png", np.zeros((1, 1, 3), "u1"))[1].tobytes())
    texts = ["n=1", "a=@{}/a.npy", "t=@{}/t.txt", "j=@{}/j.json", "i=@{}/i.png", "s=hello", 'q="1"', 'l=["a", "b"]']
    specs = [TensorSpec(name, "int64" if name == "j" else "", None) for name in "natjisql"]
    found = read_inputs([text.format(tmp_path) for text in texts], specs)
    assert found["n"].tolist() == [1]
    assert found["a"].tolist() == [0, 1, 2]
    assert found["t"].item() == "two\nlines"
    assert found["j"].dtype == np.int64
    assert isinstance(found["i"], Image)
    assert (found["s"].item(), found["q"].item(), found["l"].tolist()) == ("hello", "1", ["a", "b"])
    for wrong, problem in {"x": "expected NAME=VALUE", "x=@nowhere": "nowhere cannot be read"}.items():
        with pytest.raises(InvalidInput, match=problem):
            read_inputs([wrong], [])
    with pytest.raises(InvalidInput, match="are not known"):
        read_inputs([], [])
    with pytest.raises(InvalidInput, match=r"--input y=1: the model has no input 'y'; it expects x: float32\[\?, 1\]"):
        read_inputs(["y=1"], [TensorSpec("x", "float32", (None, 1))])


def test_a_file_that_is_no_utf8_is_named_with_the_place(tmp_path):
    (tmp_path / "t.txt").write_bytes("Zürich".encode("latin1"))
    with pytest.raises(InvalidInput, match=r"t\.txt: byte 1 \(0xfc\) is not UTF-8; expected a text in UTF-8"):
        read_inputs([f"t=@{tmp_path}/t.txt"], [])
    (tmp_path / "j.json").write_bytes(b"\xef\xbb\xbf[1]")
    assert read_inputs([f"j=@{tmp_path}/j.json"], [])["j"].tolist() == [1]
