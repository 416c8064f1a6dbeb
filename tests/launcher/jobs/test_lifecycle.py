"""Starts that fail."""

import pytest

from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.config.job_options import job_options
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import lifecycle
from cluster_serving.launcher.jobs.restart import restart
from cluster_serving.launcher.jobs.services import Services
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.launcher.rollout.change import update
from cluster_serving.launcher.services import redis_server as service
from cluster_serving.launcher.services import state
from cluster_serving.launcher.services.flink_rest import FlinkRest
from cluster_serving.launcher.services.process import is_listening
from cluster_serving.launcher.targets.local import Local
from cluster_serving.protocol.generations import SERVING, Generation
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport
from cluster_serving.settings.addresses import Address
from tests.support.fixtures.predictor import save_doubling
from tests.support.fixtures.redis_server import free_port


def test_a_flink_that_is_gone_does_not_hide_why_a_start_failed(own_cluster, redis_server, job, said):
    settings = {"jobName": job, "modelPath": "model", "redisUrl": f"127.0.0.1:{redis_server.port}"}
    settings |= {"flinkRestUrl": f"localhost:{own_cluster.flink_port}"}
    config = config_file.read(own_cluster.config(**settings))
    options = job_options(config, "start-1")

    class Gone(Local):
        """A target whose Flink ends before it takes a job."""

        def submit(self, options):
            raise LaunchError("no slots")

    with FlinkRest(f"http://localhost:{own_cluster.flink_port}") as rest, service.connect(config) as client:
        services = Services(Gone(config), rest, JobStore(client, job))
        with pytest.raises(LaunchError, match="no slots"):
            lifecycle.submit(services, config, options)
        assert said[-1].startswith(f"job {job} may still run: Flink at")
        client.delete(JobKeys(job).slots())


@pytest.mark.parametrize("change", [lifecycle.start, restart, update])
def test_no_flink_is_started_for_a_job_that_runs_in_another_one(change, db, redis_server, job, tmp_path, monkeypatch):
    monkeypatch.setenv(state.HOME, str(tmp_path / "state"))
    save_doubling(tmp_path / "model", 4)
    file = tmp_path / "config.yaml"
    redis, here = f"127.0.0.1:{redis_server.port}", Address("localhost", free_port())
    file.write_text(f"jobName: {job}\nmodelPath: model\nredisUrl: {redis}\nflinkRestUrl: {here}\n")
    keys = JobKeys(job)
    theirs = Generation(1, SERVING, "first", flink=f"http://127.0.0.1:{free_port()}")
    db.hset(keys.generations, "1", theirs.to_json())
    db.hset(keys.slots(), "0", SlotReport("first", "ready").to_json())
    with pytest.raises(LaunchError, match=f"because it runs in Flink at {theirs.flink}"):
        change(config_file.read(file))
    assert not is_listening(here)
