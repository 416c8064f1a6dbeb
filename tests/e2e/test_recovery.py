"""Killing what runs, under load: every request is answered, each with its own result."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from cluster_serving.client import ServingError
from tests import model_zoo
from tests.waiting import wait_until


class Load:
    """Two clients that enqueue numbers steadily, whatever happens, and remember what they have queued."""

    def __init__(self, requests):
        self._requests = requests
        self._stopped = threading.Event()
        self.queued = []
        self._threads = [threading.Thread(target=self._run, args=(client,)) for client in range(2)]
        for thread in self._threads:
            thread.start()

    def _run(self, client):
        number = 0
        while not self._stopped.is_set():
            number += 1
            uri = f"{client}:{number}"
            while True:
                try:
                    self._requests.enqueue(uri, x=np.full(3, client * 100_000 + number, "f8"))
                    break
                except ServingError:
                    time.sleep(0.1)
            self.queued.append(uri)
            time.sleep(0.005)

    def stop(self):
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        return self.queued


def kept_process(record):
    """Number of the process that a keeper keeps."""
    keeper = json.loads(record.read_text())["pid"]
    return int(Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()[0])


@pytest.fixture
def double(started, tmp_path):
    from openvino import opset13 as ops

    x = ops.parameter([-1, -1], np.float64, name="x")
    model_zoo.save_openvino(tmp_path, {"x": x}, {"y": ops.multiply(x, ops.constant(np.float64(2)))})
    return started(jobName="recovery", modelPath=tmp_path, modelParallelism=2)


@pytest.mark.parametrize("victim", ["taskmanager", "jobmanager", "redis"])
def test_every_request_is_answered_though_a_process_is_killed(double, cluster, victim):
    requests, results = double
    load = Load(requests)
    time.sleep(2)
    for record in cluster.state.glob(f"*/{victim}*.json"):
        os.kill(kept_process(record), signal.SIGKILL)
    time.sleep(10)
    queued = load.stop()
    assert len(queued) > 500
    for uri in queued:
        client, number = map(int, uri.split(":"))
        answer = results.query_and_delete(uri, timeout=60)
        assert answer.tolist() == [2 * (client * 100_000 + number)] * 3
    wait_until(lambda: cluster.state_of("recovery") == "RUNNING", 90)
