"""A start that cannot work says why on the terminal, within seconds, and leaves nothing running."""

import json
import signal
import time

import numpy as np
import psutil
import pytest

from tests.chaos.faults import kept_processes
from tests.support.fixtures.handled import write
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo


@pytest.fixture
def no_digits(tmp_path):
    """Folders that hold no servable model, with the words that the message must contain."""

    def make(name):
        folder = tmp_path / name
        folder.mkdir()
        if name == "two models":
            model_zoo.save_openvino_digits(folder)
            (folder / "model.pt").write_bytes(b"")
        elif name == "half a model":
            (folder / "net.xml").write_text("<net/>")
        elif name == "broken":
            (folder / "net.xml").write_text("<net/>")
            (folder / "net.bin").write_bytes(b"")
        return folder

    return make


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("empty", ["Expected"]),
        ("two models", ["model.pt", "digits.xml"]),
        ("half a model", ["net.xml", "*.bin"]),
        ("broken", ["OpenVINO cannot load", "net.xml"]),
    ],
)
def test_a_model_that_cannot_be_served(cluster, no_digits, name, words):
    done = cluster.start(jobName="failing", modelPath=no_digits(name))
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0
    assert all(word in text for word in words), text
    assert "Traceback" not in text
    assert "\tat org.apache" not in text
    listed = cluster.run("cluster-serving-cli", "list", cwd=cluster.folder / "failing").stdout
    assert "RUNNING" not in "".join(line for line in listed.splitlines() if "failing" in line)


def test_a_failed_start_is_listed_with_the_model_as_it_is_configured(cluster, no_digits):
    """And not with the path of a copy."""
    folder = no_digits("broken")
    assert cluster.start(jobName="failing", modelPath=folder).returncode != 0
    listed = json.loads(cluster.run("cluster-serving-cli", "list", "--json", cwd=cluster.folder / "failing").stdout)
    (error,) = [job["error"] for job in listed if job["name"] == "failing"]
    assert str(folder / "net.xml") in error
    assert "failing@" not in error


def test_a_folder_that_does_not_exist(cluster, tmp_path):
    done = cluster.start(jobName="failing", modelPath=tmp_path / "nowhere")
    assert done.returncode != 0
    assert "nowhere" in "".join((done.stdout + done.stderr).split())


def test_a_filter_that_does_not_fit_the_model(cluster, tmp_path):
    model_zoo.save_openvino_digits(tmp_path)
    done = cluster.start(jobName="failing", modelPath=tmp_path, postProcessing="pickTopN(2)")
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0
    assert "pickTopN(2) does not fit the model" in text
    assert "'probabilities' is float32 of shape [10]" in text


def test_a_job_of_the_same_name_is_not_started_twice(cluster, started, tmp_path):
    model_zoo.save_openvino_digits(tmp_path)
    started(jobName="once", modelPath=tmp_path)
    before = time.monotonic()
    again = cluster.start(jobName="once", modelPath=tmp_path)
    assert again.returncode != 0
    assert "restart" in again.stdout + again.stderr
    assert time.monotonic() - before < 30


def is_gateway(process):
    """What waits in the JobManager for the end of a submission."""
    return any("/gateway-" in word for word in process.cmdline())


@pytest.mark.parametrize(("number", "moment"), [(signal.SIGTERM, "submitted"), (signal.SIGINT, "taken by Flink")])
def test_a_start_that_is_ended_leaves_no_job(cluster, tmp_path, number, moment):
    model_zoo.save_openvino_digits(tmp_path)
    name = f"ended-{moment.split()[0]}"
    with cluster.starting(jobName=name, modelPath=tmp_path) as process:
        assert any(line.startswith("Submitting") for line in process.stdout)
        if moment == "taken by Flink":
            # It hears neither that Flink has taken the job nor that the job is ready.
            (jobmanager,) = kept_processes(cluster, "jobmanager")
            wait_until(lambda: any(map(is_gateway, psutil.Process(jobmanager).children())), 60)
            process.send_signal(signal.SIGSTOP)
            wait_until(lambda: cluster.state_of(name))
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        assert process.wait(60) == 128 + number
    assert cluster.state_of(name) in (None, "CANCELED")
    listed = cluster.run("cluster-serving-cli", "list", "--json", cwd=cluster.folder / name).stdout
    errors = {job["name"]: (job["state"], job["error"]) for job in json.loads(listed)}
    # A start that has submitted nothing leaves no trace.
    nothing = None if moment == "submitted" else ()
    assert errors.get(name) in (nothing, ("FAILED", "the start was interrupted"))


HALF = """
    import os

    class Handler:
        inputs = {{"x": "float32[2]"}}
        outputs = {{"y": "float32[2]"}}

        def load(self, context):
            if not os.path.exists({repaired!r}):
                # The first slot only.
                os.close(os.open({taken!r}, os.O_CREAT | os.O_EXCL))

        def predict(self, inputs):
            return {{"y": inputs["x"] * 2}}
    """


def test_a_slot_that_cannot_load_the_model_leaves_the_others_alone(cluster, started, tmp_path):
    model, repaired = tmp_path / "model", tmp_path / "repaired"
    model.mkdir()
    write(model, HALF.format(repaired=str(repaired), taken=str(tmp_path / "taken")))
    queue, _ = started(jobName="half", modelPath=model, modelParallelism=2)

    def status(*options):
        return cluster.run("cluster-serving-cli", "status", "half", *options, cwd=cluster.folder / "half").stdout

    def slots():
        return json.loads(status("--json"))["models"]

    assert {slot["state"] for slot in slots()} - {"failed", "loading"} == {"ready"}
    assert "2, 1 of them ready" in status() and "FileExistsError" in status()
    assert "FileExistsError" in (cluster.folder / "half" / "cluster-serving.log").read_text()
    for number in range(100):
        assert queue.predict({"x": np.full(2, number, "f4")}, timeout=30)["y"].tolist() == [2 * number] * 2
    repaired.touch()
    wait_until(lambda: {slot["state"] for slot in slots()} == {"ready"}, 60)
    assert sorted(slot["restarts"] > 0 for slot in slots()) == [False, True]
    assert not any(slot["error"] for slot in slots())
