"""A Flink of somebody else on this machine, at the address where the commands would start one."""

import subprocess

import httpx
import pytest

from cluster_serving.launcher.services.flink_home import FlinkHome
from tests.support.fixtures.redis_server import free_port
from tests.support.fixtures.waiting import wait_until


@pytest.fixture
def stock(tmp_path):
    """The port of a JobManager without anything of ours."""
    home, port = FlinkHome(tmp_path / "flink"), free_port()
    ours = {"heartbeat.interval": None, "heartbeat.timeout": None}
    home.prepare({"rest.port": port, "jobmanager.rpc.port": free_port(), **ours})
    for jar in (home.path / "lib").glob("flink-python-*.jar"):
        jar.unlink()
    command = [home.path / "bin" / "jobmanager.sh", "start-foreground"]
    output = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=home.work, env=home.environment(), **output) as process:
        try:
            yield port
        finally:
            process.kill()


def test_a_flink_without_pyflink_is_told_apart_before_anything_is_started(own_cluster, stock, model):
    def answers():
        try:
            return httpx.get(f"http://127.0.0.1:{stock}/overview").is_success
        except httpx.HTTPError:
            return False

    wait_until(answers, 60)
    config = own_cluster.config(jobName="local", modelPath=model, flinkRestUrl=f"127.0.0.1:{stock}")
    refused = own_cluster.run("cluster-serving-start", "-c", config)
    assert refused.returncode == 1
    assert "lacks flink-python-*.jar: set flink.target: remote" in refused.stderr
    assert not [path for path in own_cluster.services if path.is_dir()]
    remote = own_cluster.config(
        jobName="remote", modelPath=model, flinkRestUrl=f"127.0.0.1:{stock}", flink={"target": "remote"}
    )
    assert "set heartbeat.interval: 1 s" in own_cluster.run("cluster-serving-cli", "doctor", "-c", remote).stderr
