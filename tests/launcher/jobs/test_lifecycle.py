"""Starts that fail."""

from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import lifecycle, record
from cluster_serving.launcher.services import redis_server as service
from cluster_serving.launcher.services.flink_rest import FlinkRest


def test_a_flink_that_is_gone_does_not_hide_why_a_start_failed(own_cluster, redis_server, job):
    said = []
    settings = {"jobName": job, "modelPath": "model", "redisUrl": f"127.0.0.1:{redis_server.port}"}
    config = config_file.read(own_cluster.config(**settings))
    with FlinkRest(f"http://localhost:{own_cluster.flink_port}") as rest:
        lifecycle._give_up(rest, config, "", "start-1", said.append, LaunchError("no slots"))
    assert said[-1].startswith(f"job {job} may still run: Flink at")
    with service.connect(config) as client:
        assert record.read(client, job).error == "no slots"
        client.delete(record.record_key(job))
