"""The Flink that is started here, when it ends in the middle of other things."""

import json
import os
import re
import signal
import sys

import httpx
import numpy as np
import pytest

from cluster_serving.client import InputQueue
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import flink_cluster
from cluster_serving.launcher.services.flink_cluster import FlinkCluster
from cluster_serving.launcher.services.process import spawn, wait_until
from cluster_serving.settings.addresses import Address
from tests.support.fixtures.supervised import kept, supervisors


@pytest.fixture
def home(own_cluster, monkeypatch):
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(own_cluster.folder / "state"))
    return flink_cluster.folder(Address("127.0.0.1", own_cluster.flink_port))


def test_an_error_of_days_ago_is_not_why_it_does_not_start(home, own_cluster):
    logs = home / "log"
    logs.mkdir(parents=True)
    (logs / "flink.log").write_text("ERROR of days ago\n")
    code = "import time; time.sleep(2); print('ERROR of now', flush=True)"
    spawn([sys.executable, "-c", code], home / "jobmanager.json", logs / "jobmanager.out", home, os.environ)
    config = Config.model_validate({"modelPath": "m", "flinkRestUrl": f"localhost:{own_cluster.flink_port}"})
    with pytest.raises(LaunchError, match=r"did not start: ERROR of now \(logs"):
        FlinkCluster(config).ensure()


def test_an_option_that_java_does_not_know_is_named(own_cluster, model):
    options = {"env.java.opts.all": "-XX:+NoSuchOption"}
    ran = own_cluster.run(
        "cluster-serving-start", "-c", own_cluster.config(modelPath=model, flink={"options": options})
    )
    assert ran.returncode == 1
    assert "Flink did not start: Unrecognized VM option 'NoSuchOption' (logs: " in ran.stderr


def test_a_start_while_flink_is_being_started_again_costs_no_other_job(home, own_cluster, model):
    stale = home / "jobs" / "of-before-a-reboot.json"
    stale.parent.mkdir(parents=True)
    stale.write_text("{}")
    for name in ("first", "second"):
        config = own_cluster.config(jobName=name, modelPath=model)
        ran = own_cluster.run("cluster-serving-start", "-c", config)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert not stale.exists()
        if name == "first":
            record = (home / "jobmanager.json").read_text()
            os.kill(kept(json.loads(record)["pid"]), signal.SIGKILL)
    assert (home / "jobmanager.json").read_text() == record
    assert wait_until(lambda: len(re.findall("RUNNING", _listed(own_cluster, config))) == 2, 90)
    answer = InputQueue(port=own_cluster.redis_port, name="first").predict({"x": np.ones(4, np.float32)})
    np.testing.assert_array_equal(answer, [2, 2, 2, 2])
    assert len(list(home.glob("taskmanager-*.json"))) == 1

    # What a process says when it ends outlives its next start.
    manager = json.loads((home / "taskmanager-1.json").read_text())["pid"]
    (output,) = (home / "log").glob("flink-taskmanager-1-*.out")
    os.kill(kept(manager), signal.SIGQUIT)
    assert wait_until(lambda: "Full thread dump" in output.read_text("utf8", "replace"), 20)
    # Flink's UI shows it, too.
    with httpx.Client(base_url=f"http://localhost:{own_cluster.flink_port}", trust_env=False) as ui:
        (shown,) = ui.get("/taskmanagers").raise_for_status().json()["taskmanagers"]
        assert "Full thread dump" in ui.get(f"/taskmanagers/{shown['id']}/stdout").raise_for_status().text
    before = kept(manager)
    os.kill(before, signal.SIGKILL)
    assert wait_until(lambda: kept(manager) not in (None, before), 20)
    assert wait_until(lambda: "starting it again" in output.read_text("utf8", "replace"), 20)
    assert "Full thread dump" in output.read_text("utf8", "replace")
    assert "INFO" not in output.read_text("utf8", "replace")

    before = kept(manager)
    for victim in (min(supervisors(manager)), before):
        os.kill(victim, signal.SIGKILL)
    assert wait_until(lambda: kept(manager) not in (None, before), 20)
    answer = InputQueue(port=own_cluster.redis_port, name="first").predict({"x": np.ones(4, np.float32)}, timeout=90)
    np.testing.assert_array_equal(answer, [2, 2, 2, 2])

    # Without supervisors the process ends; a restart brings it back.
    os.killpg(manager, signal.SIGKILL)
    warned = own_cluster.run("cluster-serving-cli", "status", "-c", config).stderr
    assert "taskmanager-1" in warned
    assert "cluster-serving-restart" in warned

    ended = own_cluster.run("cluster-serving-shutdown", "-c", config)
    assert ended.returncode == 0
    for expected in ("Stopping job first", "Stopping job second", "Stopped Flink", "Stopped Redis", "removed its data"):
        assert expected in ended.stdout
    assert {path.name for path in own_cluster.state.glob("*-*/*")} == {"log", "redis.log"}


def _listed(own_cluster, config):
    return own_cluster.run("cluster-serving-cli", "list", "-c", config).stdout
