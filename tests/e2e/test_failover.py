"""Jobs on a Redis that fails over, and on a Redis Cluster, started by the commands."""

import copy

import numpy as np
import pytest

from cluster_serving.client import InputQueue
from cluster_serving.protocol.errors import RedisUnavailable, ResultTimeout
from tests.support.fixtures.redis_topologies import Cluster, Sentinels, eventually, servers
from tests.support.payloads import model_zoo


@pytest.fixture
def serve(cluster, tmp_path):
    """Starts a job on another Redis than the cluster's own; gives a queue for it."""
    jobs = []

    def serve(url, name):
        elsewhere = copy.copy(cluster)
        elsewhere._addresses = cluster._addresses | {"redisUrl": url}
        model_zoo.save_openvino_digits(tmp_path / "model")
        done = elsewhere.start(jobName=name, modelPath=tmp_path / "model")
        assert done.returncode == 0, done.stdout + done.stderr
        jobs.append(name)
        return InputQueue(name=name, url=url)

    yield serve
    for name in jobs:
        assert cluster.stop(name).returncode == 0


def ask(queue):
    return queue.predict({"x": np.zeros(64, "f4")}, timeout=5).shape


def test_a_job_follows_the_master_that_sentinels_name(serve, tmp_path):
    with servers() as running:
        sentinels = Sentinels(tmp_path, running)
        with serve(sentinels.url, "with-sentinels") as queue:
            assert ask(queue) == (10,)
            sentinels.master.kill()
            assert eventually(lambda: ask(queue), (RedisUnavailable, ResultTimeout)) == (10,)
            assert sentinels.replica.client.role()[0] == "master"


def test_a_job_whose_name_has_braces_is_served_from_a_cluster(serve, tmp_path):
    with servers() as running:
        cluster = Cluster(tmp_path, running)
        with serve(cluster.url, "{in-cluster}") as queue:
            assert ask(queue) == (10,)
