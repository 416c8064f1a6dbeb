"""The system under test: two jobs with their Redis and Flink, all started by the commands."""

import os
import shutil
import subprocess

import numpy as np
import redis

from cluster_serving.protocol.keys import JobKeys
from tests.chaos.proxy import Proxy
from tests.support.fixtures.cluster import Cluster
from tests.support.payloads import model_zoo

JOBS = {"chaos": "thread", "workers": "process"}
"""Jobs by their execution mode; the first reaches Redis through a proxy."""


class System:
    """Starts everything; `close` ends it.

    Attributes:
        disk: Small disk that holds the data of Redis; None where none could be mounted.
    """

    def __init__(self, folder):
        from openvino import opset13 as ops

        model = folder / "model"
        model.mkdir()
        x = ops.parameter([-1, -1], np.float64, name="x")
        model_zoo.save_openvino(model, {"x": x}, {"y": ops.multiply(x, ops.constant(np.float64(2)))})
        self._model = model
        self.cluster = Cluster(folder)
        self.port = self.cluster.redis_port
        self.redis = redis.Redis(port=self.port)
        self.disk = self._mount()
        self.proxy = Proxy(self.port)
        self.start("workers", 1)
        self.start("chaos", 2)

    def start(self, name, slots):
        done = self.cluster.start(**self._settings(name, slots))
        assert done.returncode == 0, done.stdout + done.stderr

    def restart(self, name, slots):
        """Restart a job; a command that fails because of another fault is tried again, as an operator would."""
        for attempt in range(10):
            self.cluster.configure(**self._settings(name, slots))
            done = self.cluster.restart(name)
            if done.returncode == 0:
                return
            print(f"  attempt {attempt + 1} to restart {name}: {done.stderr.strip()}")
        raise AssertionError(f"{name} could not be restarted")

    def backlog(self):
        """Requests that are queued or pending, and results that nobody has taken."""
        waiting = sum(self.redis.xlen(name) for name in JOBS)
        return waiting, sum(1 for name in JOBS for _ in self.redis.scan_iter(JobKeys(name).native_result("*")))

    def close(self):
        self.cluster.run("cluster-serving-shutdown", "--yes", cwd=self.cluster.folder / "workers")
        self.proxy.close()
        self.redis.close()
        if self.disk:
            subprocess.run(["umount", "-l", str(self.disk)], check=False)

    def _settings(self, name, slots):
        settings = {
            "jobName": name,
            "modelPath": str(self._model),
            "modelParallelism": slots,
            "executionMode": JOBS[name],
            # Faults come faster here than anywhere else.
            "claimIdleTime": 10,
            "maxDeliveries": 20,
        }
        return settings | ({"redisUrl": f"127.0.0.1:{self.proxy.port}"} if name == "chaos" else {})

    def _mount(self):
        folder = self.cluster.state / f"redis-{self.port}"
        if os.geteuid() or not shutil.which("mount"):
            return None
        folder.mkdir(parents=True)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", str(folder)], check=False)
        return folder if mounted.returncode == 0 else None
