"""The commands, run as a user runs them, on a Redis and a Flink that they start."""

import http.server
import json
import re
import shlex
import shutil
import signal
import subprocess
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
import redis

from cluster_serving.client import InputQueue
from cluster_serving.frontend import arguments
from cluster_serving.job.options import JobOptions, ModelOptions, RedisOptions
from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import preflight, restart
from cluster_serving.launcher.services.flink_cluster import FlinkCluster
from cluster_serving.launcher.services.flink_rest import FlinkRest
from cluster_serving.launcher.targets import submission
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import read_reports
from cluster_serving.settings.addresses import Address
from tests.support.fixtures.front_end import Running
from tests.support.fixtures.messages import heard
from tests.support.fixtures.waiting import PAUSE_S, wait_until

STATUS = Path(__file__).parents[2] / "docs" / "how-to" / "status.md"


def test_init_writes_a_configuration_and_refuses_to_overwrite_it(own_cluster):
    ran = own_cluster.run("cluster-serving-init")
    assert ran.returncode == 0
    assert "cluster-serving-start" in ran.stdout
    path = own_cluster.folder / "config.yaml"
    assert path.read_text().count("modelPath: model") == 1
    assert (own_cluster.folder / "model").is_dir()

    # As in a clone, which has the file and no folder.
    (own_cluster.folder / "model").rmdir()
    assert own_cluster.run("cluster-serving-init").returncode == 0
    assert (own_cluster.folder / "model").is_dir()
    path.write_text("mine")
    again = own_cluster.run("cluster-serving-init")
    assert again.returncode == 2
    assert "exists already" in again.stderr
    assert path.read_text() == "mine"
    assert own_cluster.run("cluster-serving-init", "--force").returncode == 0
    assert path.read_text() != "mine"


def test_a_wrong_key_ends_a_command_with_one_line(own_cluster):
    (own_cluster.folder / "config.yaml").write_text("modelPath: model\nmodelParallelism: many\n")
    ran = own_cluster.run("cluster-serving-start")
    assert ran.returncode == 2
    assert ran.stderr == (
        "error: config.yaml, line 2: modelParallelism is 'many' (text); expected a whole number from 1 to 4096, "
        "or empty\n"
    )


@pytest.mark.parametrize(("second", "expected"), [(False, "holds no model"), (True, "more than one model")])
def test_a_folder_without_exactly_one_model_stops_the_start_before_anything_runs(own_cluster, model, second, expected):
    folder = own_cluster.folder / "models"
    folder.mkdir()
    if second:
        shutil.copytree(model, folder, dirs_exist_ok=True)
        (folder / "other.pt").touch()
    ran = own_cluster.run("cluster-serving-start", "-c", own_cluster.config(modelPath=folder))
    assert ran.returncode == 1
    assert expected in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert not own_cluster.services


def test_a_flink_port_that_something_else_uses_is_named_with_its_setting(own_cluster, model):
    server = http.server.HTTPServer(("127.0.0.1", own_cluster.flink_port), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        ran = own_cluster.run("cluster-serving-start", "-c", own_cluster.config(modelPath=model))
    finally:
        server.shutdown()
        server.server_close()
    assert ran.returncode == 1
    assert f"port {own_cluster.flink_port}" in ran.stderr
    assert "flinkRestUrl" in ran.stderr
    assert "Starting Redis" not in ran.stdout


def test_without_anything_running_the_commands_say_so(own_cluster):
    assert "Nothing is running" in own_cluster.run("cluster-serving-shutdown").stdout
    config = own_cluster.config(modelPath="model")
    ran = own_cluster.run("cluster-serving-cli", "list", "-c", config)
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert "flinkRestUrl" in ran.stderr


@contextmanager
def asking_front_end(cluster, name):
    """Ask a front end that was not told the names of its jobs, over two APIs; collects what it refuses, and why."""
    front = Running(
        arguments.read([f"--redisUrl=redis://127.0.0.1:{cluster.redis_port}", "--port=0", "--grpcPort=0"], {})
    )
    v2 = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
    bodies = {"predict": {"instances": [{"x": [1, 2, 3, 4]}]}, "infer": v2}
    counts, refused, stopped = Counter(), set(), threading.Event()

    def ask(path):
        with httpx.Client(base_url=front.url, timeout=60) as client:
            while not stopped.wait(PAUSE_S):
                answer = client.post(path, json=bodies[path.rpartition("/")[2]])
                counts[path] += 1
                if answer.status_code != 200:
                    refused.add((path, answer.status_code, answer.text))

    paths = [f"/models/{name}/predict", f"/models/{name}/versions/1/predict", f"/v2/models/{name}/infer"]
    with ThreadPoolExecutor() as pool:
        asking = [pool.submit(ask, path) for path in paths]
        wait_until(lambda: len(counts) == len(paths))
        yield refused
        stopped.set()
        for one in asking:
            one.result(60)
    front.stop()


def documented_fields():
    """Fields of the JSON of `status`, as docs/how-to/status.md lists them."""
    section = STATUS.read_text("utf8").partition("\n## ")[0]
    return {
        name for names in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", names)
    }


def assert_answers(cluster):
    answer = InputQueue(port=cluster.redis_port, name="cycle").predict({"x": np.arange(4, dtype=np.float32)})
    np.testing.assert_array_equal(answer, [0, 2, 4, 6])


def test_a_job_from_its_start_to_its_stop(cluster, model, tmp_path, monkeypatch):
    settings = {"jobName": "cycle", "modelPath": shutil.copytree(model, tmp_path / "model"), "modelParallelism": 2}
    config = cluster.config(**settings)
    started = cluster.run("cluster-serving-start", "-c", config)
    assert started.returncode == 0, started.stderr
    stop = f"cluster-serving-stop cycle -c {shlex.quote(str(config))}"
    for expected in ("Ready", "cycle", "OpenVINO", f"{cluster.rest}/#/job/running/", "predict", stop):
        assert expected in started.stdout

    assert_answers(cluster)

    again = cluster.run("cluster-serving-start", "-c", config)
    assert again.returncode == 1
    assert "cluster-serving-restart" in again.stderr

    header, *rows = cluster.run("cluster-serving-cli", "list", "-c", config).stdout.splitlines()
    assert header.split() == ["name", "state", "job", "id", "version", "slots", "for", "answered", "dead", "letters"]
    row = next(row.split() for row in rows if row.split()[0] == "cycle")
    # Whole, although this terminal would be narrow; and counted at the first look.
    assert row[:2] == ["cycle", "RUNNING"] and re.fullmatch("[0-9a-f]{32}", row[2]) and row[-1] == "1"
    status = cluster.run("cluster-serving-cli", "status", "-c", config)
    assert "slot 1" in status.stdout and "0 restarts" in status.stdout and "0 requests" in status.stdout
    assert "1 answered since cluster-serving-start" in status.stdout
    details = json.loads(cluster.run("cluster-serving-cli", "status", "--json", "-c", config).stdout)
    assert details.keys() == documented_fields()
    assert (details["name"], details["state"], details["slots"], details["error"]) == ("cycle", "RUNNING", 2, "")
    assert [slot["state"] for slot in details["models"]] == ["ready"] * 2
    assert details["queue"] == {"high": 0, "normal": 0, "low": 0, "pending": 0}

    # A damaged model does not replace the one that serves.
    network = tmp_path / "model" / "model.xml"
    network.rename(tmp_path / "kept.xml")
    network.write_text("<net")
    refused = cluster.run("cluster-serving-restart", "-c", config)
    assert refused.returncode == 1
    assert "model.xml" in refused.stderr and "job cycle goes on as it was" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert_answers(cluster)
    shutil.copytree(tmp_path / "model", tmp_path / "damaged")
    (tmp_path / "kept.xml").rename(network)

    # If no copy is loaded beforehand, the start fails; then the earlier job is back, and what the start took is free.
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(cluster.folder / "state"))
    monkeypatch.setattr(preflight, "fits", lambda options: False)
    with FlinkRest(cluster.rest) as rest:
        wanted = rest.overview().free + 3
        damaged = cluster.config(**settings | {"modelPath": tmp_path / "damaged", "modelParallelism": wanted})
        with heard() as said, pytest.raises(LaunchError, match=r"model\.xml.*; job cycle runs again as it was"):
            restart.restart(config_file.read(damaged))
        assert "Stopping 1 TaskManager of this start" in said
        wait_until(lambda: rest.overview().free == wanted - 3)
        assert rest.parallelism(rest.jobs("cycle")[0].id) == 2
    assert_answers(cluster)
    status = cluster.run("cluster-serving-cli", "status", "-c", config)
    assert status.returncode == 0
    assert re.search(r"^last error +[-0-9]{10} [:0-9]{8} OpenVINO .*model\.xml", status.stdout, re.MULTILINE)

    config = cluster.config(**settings)
    with (
        asking_front_end(cluster, "cycle") as refused,
        cluster.running("cluster-serving-restart", config.parent) as restarting,
    ):
        assert any(line.startswith("Submitting") for line in restarting.stdout)
        # So that it does not end before the other command looks.
        restarting.send_signal(signal.SIGSTOP)
        with cluster.starting(**settings) as waiting:
            expected = f"Waiting for 'cluster-serving-restart' (process {restarting.pid} on"
            assert any(line.startswith(expected) for line in waiting.stdout)
            restarting.send_signal(signal.SIGCONT)
            assert "job cycle is RUNNING already" in waiting.stdout.read()
        assert "Ready" in restarting.stdout.read()
        assert restarting.wait(60) == 0
    # Requests that came meanwhile have waited.
    assert not refused

    stopped = cluster.run("cluster-serving-stop", "-c", config)
    assert stopped.returncode == 0, stopped.stderr
    jobs = json.loads(cluster.run("cluster-serving-cli", "list", "--json", "-c", config).stdout)
    (stopped,) = [job for job in jobs if job["name"] == "cycle"]
    assert (stopped["state"], stopped["job_id"], stopped["error"]) == ("STOPPED", "", "")
    assert stopped.keys() == documented_fields() - {"models", "queue", "comparison", "recent"}
    with redis.Redis(port=cluster.redis_port) as db:
        assert [report.state for report in read_reports(db.hgetall(JobKeys("cycle").slots()))] == ["stopped"] * 2
    missing = cluster.run("cluster-serving-stop", "cycle", "-c", config)
    assert missing.returncode == 1
    assert "no job cycle is running" in missing.stderr


def test_a_model_that_cannot_be_loaded_fails_the_start_with_its_cause(cluster, model, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    (broken / "model.xml").write_text("<net")
    config = cluster.config(jobName="broken", modelPath=broken)
    ran = cluster.run("cluster-serving-start", "-c", config)
    assert ran.returncode == 1
    assert "model.xml" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    status = cluster.run("cluster-serving-cli", "status", "-c", config)
    assert status.returncode == 3
    assert re.search(r"^state +FAILED for \d+ s$", status.stdout, re.MULTILINE)
    assert re.search(r"^last error +[-0-9]{10} [:0-9]{8} OpenVINO .*model\.xml", status.stdout, re.MULTILINE)
    log = Path(re.search(r"^log +(.*)$", status.stdout, re.MULTILINE)[1])
    text = log.read_text()
    assert "the start failed: OpenVINO cannot load" in text and "\tat org.apache.flink." in text
    listed = cluster.run("cluster-serving-cli", "list", "-c", config).stdout
    assert re.search(rf"^broken: OpenVINO cannot load .* \(log: {re.escape(str(log))}\); ", listed, re.MULTILINE)


@pytest.fixture
def home(cluster, monkeypatch):
    """Folder of a Flink that runs."""
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(cluster.folder / "state"))
    flink = FlinkCluster(config_file.read(cluster.config(modelPath="model")))
    flink.ensure()
    return flink.home


def test_a_job_that_flink_does_not_take_shows_the_error_and_not_the_trace(cluster, model, home):
    address = Address("127.0.0.1", cluster.flink_port)
    options = JobOptions("start-1", ModelOptions(str(model)), RedisOptions("redis://localhost:1", "refused"))
    with pytest.raises(LaunchError) as error:
        log = home.logs / "submission-refused.log"
        command = [*submission.on_this_machine(home, address), *submission.MAIN]
        submission.submit(home, command, options.submission, options.to_json(), log, timeout=60)
    message = str(error.value)
    assert "ConnectionError" in message and "localhost:1" in message
    assert "submission-refused.log" in message
    assert len(message.splitlines()) == 1


OTHER = """
from pyflink.common import WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource

env = StreamExecutionEnvironment.get_execution_environment()
env.from_source(NumberSequenceSource(0, 1 << 60), WatermarkStrategy.no_watermarks(), "numbers").print()
env.execute_async("other")
"""


def test_other_jobs_of_the_cluster_are_left_alone(cluster, tmp_path, home):
    (tmp_path / "other.py").write_text(OTHER)
    command = [home.path / "bin" / "flink", "run", "-d", "-pyclientexec", home.python, "-py", tmp_path / "other.py"]
    submitted = subprocess.run(command, env=home.environment(), cwd=home.work, capture_output=True, text=True)
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    job_id = re.search(r"JobID (\w+)", submitted.stdout)[1]
    config = cluster.config(modelPath="model")
    listed = json.loads(cluster.run("cluster-serving-cli", "list", "--json", "-c", config).stdout)
    assert "other" not in [job["name"] for job in listed]
    assert "no job other is running" in cluster.run("cluster-serving-stop", "other", "-c", config).stderr
    with FlinkRest(cluster.rest) as rest:
        assert rest.state(job_id) == "RUNNING"
        rest.cancel(job_id)
        assert rest.state(job_id) == "CANCELED"
