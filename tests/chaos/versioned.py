"""A job whose model has versions, with a front end: started, changed and looked at by the commands."""

import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import redis

from cluster_serving.protocol.keys import JobKeys
from tests.chaos.clients import STEP, Place
from tests.chaos.faults import descendants, kept_processes
from tests.support.fixtures.cluster import Cluster
from tests.support.fixtures.redis_server import free_port
from tests.support.payloads import model_zoo

JOB = "changes"
_FURTHER_ATTEMPTS = 5
_LONGEST_COMMAND = 600


@dataclass
class Window:
    """The time of a command that changes the job (`time.monotonic`).

    Attributes:
        is_disturbed: Something was killed meanwhile, or may have been.
    """

    label: str
    begin: float
    end: float
    is_disturbed: bool


class VersionedJob:
    """The job with its Redis, Flink and front end; `close` ends them.

    Attributes:
        place: Where clients ask it.
        versions: Versions that can be loaded, the serving one included.
        windows: Times of the commands so far.
        kill: Called when a command begins, in a thread, with the job and the command's process; it kills something
            after a while. None for no kills.
    """

    def __init__(self, folder, slots):
        self.cluster = Cluster(folder)
        self.versions = []
        self.windows = []
        self.kill = None
        self._model = folder / "model"
        http, grpc = free_port(), free_port()
        self.place = Place(JOB, self.cluster.redis_port, f"http://127.0.0.1:{http}", f"127.0.0.1:{grpc}")
        self.add_version()
        settings = {"modelPath": self._model, "modelParallelism": slots, "http": {"port": http, "grpcPort": grpc}}
        self._folder = self.cluster.configure(jobName=JOB, claimIdleTime=10, maxDeliveries=20, **settings)
        status, output = self._run("cluster-serving-start", "--http")
        assert status == 0, output

    def close(self):
        self.cluster.shutdown()

    def add_version(self):
        """Add a version of the model that is higher than all others."""
        from openvino import opset13 as ops

        number = self._next_version()
        x = ops.parameter([-1, -1], np.float32, name="x")
        # Written elsewhere first: a folder that appears is complete.
        part = self._model.parent / "part"
        model_zoo.save_openvino(part, {"x": x}, {"y": ops.add(x, ops.constant(np.float32(STEP * number)))})
        self._model.mkdir(exist_ok=True)
        part.rename(self._model / str(number))
        self.versions.append(number)

    @contextmanager
    def broken_version(self):
        """Add a version that cannot be loaded, for the time of a `with` block."""
        folder = self._model / str(self._next_version())
        folder.mkdir()
        (folder / "model.xml").write_text("<net>")
        (folder / "model.bin").write_bytes(b"")
        try:
            yield
        finally:
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()

    def command(self, command, *arguments, fails=False):
        """Run a command that changes the job.

        After a kill in its middle, a command that has failed is run again, as an operator would.
        """
        label, begin = " ".join([command, *arguments]), time.monotonic()
        status, output = self._run(command, *arguments)
        for _ in range(_FURTHER_ATTEMPTS if self.kill else 0):
            if status == 0 or fails:
                break
            status, output = self._run(command, *arguments, undisturbed=True)
        self.windows.append(Window(label, begin, time.monotonic(), self.kill is not None))
        if (status != 0) != fails:
            text = f"{label} ended with {status}: {output.strip()}"
            assert self.kill, text
            print(f"  {text}", flush=True)

    def _run(self, command, *arguments, undisturbed=False):
        with self.cluster.running(command, self._folder, *arguments) as process:
            if self.kill and not undisturbed:
                threading.Thread(target=self.kill, args=(self, process), daemon=True).start()
            output, _ = process.communicate(timeout=_LONGEST_COMMAND)
        return process.returncode, output

    def _next_version(self):
        return max((int(folder.name) for folder in self._model.glob("*")), default=0) + 1

    def resident(self):
        """Return the memory of all TaskManagers and the processes below them, in MB."""
        managers = kept_processes(self.cluster, "taskmanager")
        pids = [pid for manager in managers for pid in (manager, *descendants(manager))]
        return sum(map(_resident, pids)) / 1e6

    def waiting(self):
        """Return the number of requests without an answer."""
        with redis.Redis(port=self.place.redis_port) as client:
            return sum(client.xlen(stream) for stream in JobKeys(JOB).streams)


def _resident(pid):
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:  # It has just ended.
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
