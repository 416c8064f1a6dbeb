"""Models in DataStream jobs, and in Table API and SQL, on the Flink that the commands start."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chaos.faults import kept_processes
from tests.support import flink_programs
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo

EXAMPLES = Path(__file__).parents[2] / "examples" / "flink"
PROGRAMS = Path(__file__).with_name("programs")


@pytest.fixture(scope="module")
def flink(cluster, tmp_path_factory):
    """The shared cluster with its Flink running, which the first job starts."""
    folder = tmp_path_factory.mktemp("product")
    model_zoo.save_openvino_product(folder, 2)
    done = cluster.start(jobName="flink", modelPath=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    yield cluster
    cluster.stop("flink")


@pytest.fixture
def digits(tmp_path):
    """A model, a file with 40 digits of which one is cut off, and a folder for the answers."""
    model_zoo.save_onnx_digits(tmp_path / "model")
    x = model_zoo.digits_data()[0][:40]
    lines = [{"id": number, "pixels": pixels.tolist()[: 63 if number == 7 else 64]} for number, pixels in enumerate(x)]
    (tmp_path / "digits.json").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return tmp_path / "model", tmp_path / "digits.json", tmp_path / "answers"


def answers(folder):
    lines = [line for file in folder.rglob("*") if file.is_file() for line in file.read_text().splitlines()]
    return {answer["id"]: answer for answer in map(json.loads, lines)}


def seen(x):
    return model_zoo.digits_mlp(x).argmax(1).tolist()


def test_the_example_of_a_stream_answers_each_line(flink, digits, tmp_path):
    flink_programs.run(flink, EXAMPLES / "stream.py", *digits, cwd=tmp_path)
    found = answers(digits[2])
    assert found.pop(7)["error"].startswith("INVALID_INPUT: input 'x' has shape [63]")
    expected = seen(model_zoo.digits_data()[0][:40])
    assert {number: answer["digit"] for number, answer in found.items()} == {
        number: digit for number, digit in enumerate(expected) if number != 7
    }


def test_the_example_of_a_session_answers_each_row(flink, digits, tmp_path):
    flink_programs.run(flink, EXAMPLES / "session.py", *digits, cwd=tmp_path)
    found = answers(digits[2])
    wrong = found.pop(7)
    assert wrong.get("probabilities") is None
    assert wrong["error"].startswith("INVALID_INPUT: input 'x'") and "[63]" in wrong["error"]
    expected = model_zoo.digits_mlp(model_zoo.digits_data()[0][:40])
    assert len(found) == 39
    for number, answer in found.items():
        assert answer["probabilities"] == pytest.approx(expected[number], abs=1e-5)
        assert answer.get("error") is None


def test_the_example_of_parquet_scores_each_row_group(flink, digits, tmp_path):
    x = model_zoo.digits_data()[0]
    pq.write_table(pa.table({"x": list(x)}), tmp_path / "digits.parquet", row_group_size=150)
    digits[2].mkdir()
    arguments = (digits[0], digits[2], tmp_path / "digits.parquet")
    flink_programs.run(flink, EXAMPLES / "parquet.py", *arguments, cwd=tmp_path)
    files = sorted(digits[2].iterdir())
    assert [file.name for file in files] == [f"digits.{group:05}.parquet" for group in range(3)]
    found = [row for file in files for row in pq.read_table(file)["probabilities"].to_pylist()]
    np.testing.assert_allclose(found, model_zoo.digits_mlp(x), atol=1e-5)


def test_elements_keep_order_time_and_watermarks_and_bad_ones_go_to_the_side(flink, tmp_path):
    model_zoo.save_openvino_product(tmp_path / "model", 3)
    flink_programs.run(flink, PROGRAMS / "elements.py", tmp_path / "model", tmp_path, cwd=tmp_path)
    answered = [json.loads(line) for line in (tmp_path / "answered").read_text().splitlines()]
    good = [number for number in range(1, 101) if number % 10]
    assert [element[:3] for element in answered] == [[number, 3 * number, 1000 * number] for number in good]
    watermarks = [element[3] for element in answered]
    # None is late, and watermarks pass between them.
    assert all(watermark < time for (_, _, time, watermark) in answered)
    assert watermarks == sorted(watermarks) and watermarks[-1] > 0
    failed = (tmp_path / "failed").read_text().splitlines()
    assert [line.partition(":")[0] for line in failed] == [f"{number} INVALID_INPUT" for number in range(10, 101, 10)]


def test_every_element_is_answered_exactly_once_although_a_task_manager_dies(own_cluster, tmp_path):
    model, output = tmp_path / "model", tmp_path / "output"
    model_zoo.save_openvino_product(model, 3)
    done = own_cluster.start(jobName="first", modelPath=model)
    assert done.returncode == 0, done.stdout + done.stderr
    arguments = (model, tmp_path / "checkpoints", output)
    with flink_programs.submit(own_cluster, PROGRAMS / "exactly_once.py", *arguments, cwd=tmp_path) as running:
        # A file is complete after a checkpoint.
        wait_until(lambda: any(output.glob("*/part-*")), 120)
        assert running.poll() is None
        os.kill(kept_processes(own_cluster, "taskmanager")[0], signal.SIGKILL)
        text, _ = running.communicate(timeout=240)
    assert running.returncode == 0, text
    lines = [line for file in output.glob("*/part-*") for line in file.read_text().splitlines()]
    assert sorted(lines) == sorted(f"{number} {3 * (number % 100)}" for number in range(1, 10_001))
