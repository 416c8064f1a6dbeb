"""Starts that fail."""

import pytest

from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.config.job_options import job_options
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import lifecycle
from cluster_serving.launcher.jobs.services import Services
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.launcher.services import redis_server as service
from cluster_serving.launcher.services.flink_rest import FlinkRest
from cluster_serving.launcher.targets.local import Local
from cluster_serving.protocol.keys import JobKeys


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
