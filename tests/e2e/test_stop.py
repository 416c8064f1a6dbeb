"""What is left of a job that was stopped: its TaskManager goes on, and what its slots had opened there must not."""

import time

import numpy as np
import pytest

from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import HEARTBEAT_S
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_stopped_job_holds_no_connection_and_gives_no_sign_of_life(cluster, cluster_db, tmp_path, mode):
    ops = model_zoo.digits().ops
    x = ops.parameter([-1, 2], np.float32)
    model_zoo.save_openvino(tmp_path, {"x": x}, {"y": ops.add(x, ops.constant(np.float32(1)))})
    name = f"stopped-{mode}"
    settings = {"jobName": name, "modelPath": tmp_path, "executionMode": mode, "inferenceTimeout": 30}
    connections = []
    for _ in range(2):
        assert cluster.start(**settings).returncode == 0
        requests, results = cluster.queues(name)
        with requests, results:
            assert requests.predict({"x": np.ones(2, "f4")}, timeout=60).tolist() == [2, 2]
        assert cluster.stop(name).returncode == 0
        wait_until(lambda: cluster.state_of(name) == "CANCELED")
        # The cluster itself holds some from its first job on.
        connections.append(len(cluster_db.client_list()))
        wait_until(lambda: len(cluster_db.client_list()) <= connections[0], 10)
    beat = cluster_db.hget(JobKeys(name).slots(), "0:beat")
    time.sleep(1.5 * HEARTBEAT_S)
    assert beat
    assert cluster_db.hget(JobKeys(name).slots(), "0:beat") == beat
