"""Starts that fail."""

from cluster_serving.launcher.jobs import lifecycle
from cluster_serving.launcher.services.flink_rest import FlinkRest


def test_a_flink_that_is_gone_does_not_hide_why_a_start_failed(own_cluster):
    said = []
    with FlinkRest(f"http://localhost:{own_cluster.flink_port}") as rest:
        lifecycle._give_up(rest, "lost", "", "start-1", said.append)
    assert said[-1].startswith("job lost may still run: Flink at")
