"""Large inputs in files, with a job and a Redis that the commands started."""

import os

import numpy as np
import pytest

from cluster_serving.client import InvalidInput
from cluster_serving.protocol.keys import PAYLOAD_FOLDER, JobKeys
from cluster_serving.protocol.payloads.files import MIN_BYTES
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo

LARGE = np.arange(MIN_BYTES // 4, dtype="f4")


@pytest.fixture
def start(started, tmp_path):
    """Starts a job whose model doubles its input."""

    def run(name, **settings):
        from openvino import opset13 as ops

        x = ops.parameter([-1, -1], np.float32, name="x")
        model_zoo.save_openvino(tmp_path, {"x": x}, {"y": ops.multiply(x, ops.constant(np.float32(2)))})
        return started(jobName=name, modelPath=tmp_path, **settings)

    return run


def folder_of(db, job):
    return os.fsdecode(db.hget(JobKeys(job).limits, PAYLOAD_FOLDER) or b"")


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_requests_with_files_are_answered_and_leave_nothing(cluster, cluster_db, start, mode):
    name = f"files-{mode}"
    requests, results = start(name, executionMode=mode)
    folder = folder_of(cluster_db, name)
    assert folder.startswith(str(cluster.state / f"redis-{cluster.redis_port}"))
    np.testing.assert_array_equal(requests.predict({"x": LARGE}, timeout=60), 2 * LARGE)
    cluster.stop(name)
    # What waits for a job that is stopped is there when it starts again.
    for number in range(20):
        requests.enqueue(f"r{number}", x=LARGE + number)
    requests.enqueue("small", x=np.ones(3, "f4"))
    waiting = set(os.listdir(folder))
    assert len(waiting) == 20
    requests.enqueue("missing", x=LARGE)
    (file,) = set(os.listdir(folder)) - waiting
    os.unlink(os.path.join(folder, file))
    assert cluster_db.memory_usage(name, samples=0) < MIN_BYTES
    start(name, executionMode=mode)
    assert folder_of(cluster_db, name) == folder
    for number in range(20):
        np.testing.assert_array_equal(results.query(f"r{number}", timeout=60), 2 * (LARGE + number))
    np.testing.assert_array_equal(results.query("small", timeout=60), np.full(3, 2, "f4"))
    with pytest.raises(InvalidInput, match="does not exist"):
        results.query("missing", timeout=60)
    wait_until(lambda: not os.listdir(folder))


def test_a_folder_of_ones_own_and_none(cluster, cluster_db, start, tmp_path):
    requests, _ = start("files-none", payloadFolder="none")
    assert not folder_of(cluster_db, "files-none")
    np.testing.assert_array_equal(requests.predict({"x": LARGE}, timeout=60), 2 * LARGE)
    cluster.stop("files-none")
    own = tmp_path / "shared"
    own.mkdir()
    requests, _ = start("files-none", payloadFolder=str(own))
    assert folder_of(cluster_db, "files-none").startswith(f"{own}/payloads-")
    np.testing.assert_array_equal(requests.predict({"x": LARGE}, timeout=60), 2 * LARGE)
    cluster.stop("files-none")
    failed = cluster.start(jobName="files-none", modelPath=tmp_path, payloadFolder=str(tmp_path / "missing"))
    assert failed.returncode != 0
    assert f"payloadFolder {tmp_path / 'missing'} cannot be used: No such file or directory" in failed.stderr
