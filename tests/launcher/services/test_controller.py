"""The process that changes a job without a command: started, supervised and stopped, with a job that does not run."""

import os
import signal

import pytest
import redis

from cluster_serving.launcher.commands import observing
from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import controller
from cluster_serving.launcher.services.controller import WatchedModels
from cluster_serving.launcher.services.process import Process
from cluster_serving.protocol.hosting.control import UNLOAD, ControlRequest
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport
from tests.support.fixtures.redis_server import free_port
from tests.support.fixtures.waiting import wait_until


@pytest.fixture
def client(redis_server, job):
    with redis.Redis(port=redis_server.port, decode_responses=True) as client:
        yield client
        client.delete(JobKeys(job).controller, JobKeys(job).control, JobKeys(job).slots())


@pytest.fixture
def path(redis_server, job, tmp_path, monkeypatch):
    """A configuration that asks for a controller, of a Flink that does not run."""
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "state"))
    path = tmp_path / "config.yaml"
    path.write_text(
        f"modelPath: m\njobName: {job}\nredisUrl: localhost:{redis_server.port}\n"
        f"flinkRestUrl: localhost:{free_port()}\nmodelControl: true\nwatchModel: true\n"
    )
    yield path
    controller.stop_all(None, {})


def test_a_controller_is_started_once_kept_alive_and_stopped(path, client, job, said):
    config = config_file.read(path)
    controller.ensure(config, path, WatchedModels("seen"))
    assert said == [f"Starting the controller of job {job}: watchModel, modelControl"]
    assert client.hget(JobKeys(job).controller, "tasks") == "watchModel, modelControl"
    assert 0 < client.ttl(JobKeys(job).controller) <= 15

    client.hset(JobKeys(job).slots(), "0", SlotReport("start-1", "stopped", engine="test").to_json())
    request = ControlRequest(UNLOAD, client.time()[0] + 60)
    client.rpush(JobKeys(job).control, request.to_json())
    wait_until(lambda: client.hgetall(JobKeys(job).control_outcome(request.id)) == {"code": "", "error": ""})
    assert '"state": "unloaded"' in client.hget(JobKeys(job).slots(), "0")

    # Another one that was started later, as on another machine, has the job until it is gone.
    client.hset(JobKeys(job).controller, "since", str(client.time()[0] + 60))
    wait_until(lambda: "resting: a controller that was started later" in controller.log_of(config).read_text())
    assert controller.recall(config).served == "seen"

    record = controller.log_of(config).with_suffix(".json")
    assert observing.unsupervised(config) == []
    os.killpg(Process.read(record).pid, signal.SIGKILL)
    wait_until(lambda: observing.unsupervised(config))
    assert observing.unsupervised(config) == [f"{record.parent.name}/{job}"]
    assert not controller.stop(config.redis_address, job)
    client.delete(JobKeys(job).controller)
    controller.ensure(config, path)
    first = Process.read(record)
    controller.ensure(config, path)
    assert not first.is_alive
    assert controller.stop_all(config.redis_address, {config.redis_address: [job]}) == []
    assert controller.stop_all(config.redis_address, {}) == [job]
    assert not client.exists(JobKeys(job).controller)


def test_a_controller_that_does_not_start_says_why(path, job):
    config = config_file.read(path)
    path.write_text("modelPath: m\nmaxBatchSize: many\n")
    with pytest.raises(LaunchError, match=rf"job {job} runs, but its controller did not start: .*maxBatchSize"):
        controller.ensure(config, path)


def test_a_job_that_needs_no_controller_has_none(path, job, said):
    controller.ensure(config_file.read(path), path)
    path.write_text(path.read_text().replace("true", "false"))
    config = config_file.read(path)
    said.clear()
    controller.ensure(config, path)
    assert not said
    assert not controller.stop(config.redis_address, job)
