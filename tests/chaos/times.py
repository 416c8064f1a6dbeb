"""Times until three jobs answer again after each fault, with nothing else on the machine.

python -m tests.chaos.times --repeat 3
"""

import argparse
import os
import signal
import statistics
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from cluster_serving.client import InputQueue, ServingError
from tests.chaos.faults import kept_processes, python_workers
from tests.support import model_zoo
from tests.support.cluster import Cluster

JOBS = {"one": "thread", "two": "thread", "three": "process"}
SERVICES = ("taskmanager", "jobmanager", "redis")
FAULTS = {
    "TaskManager": ("taskmanager",),
    "JobManager": ("jobmanager",),
    "both": ("taskmanager", "jobmanager"),
    "everything": SERVICES,
    "Python worker": ("worker",),
}
PATIENCE = 300.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--faults", default=",".join(FAULTS), help="names separated by commas; default: all")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder))
        try:
            start(cluster, Path(folder, "model"))
            for fault in options.faults.split(","):
                measure(cluster, fault, options.repeat)
        finally:
            cluster.shutdown()


def start(cluster, model):
    from openvino import opset13 as ops

    model.mkdir()
    x = ops.parameter([-1, -1], np.float64, name="x")
    model_zoo.save_openvino(model, {"x": x}, {"y": ops.multiply(x, ops.constant(np.float64(2)))})
    for name, mode in JOBS.items():
        begun = time.monotonic()
        done = cluster.start(jobName=name, modelPath=model, executionMode=mode)
        assert done.returncode == 0, done.stdout + done.stderr
        print(f"started {name} in {time.monotonic() - begun:.1f} s", flush=True)


def measure(cluster, fault, repeat):
    times = []
    for _ in range(repeat):
        # After a minute of work the pauses before restarts are short again, as they are for a rare fault.
        time.sleep(65 if times else 5)
        back = {}
        begun = time.monotonic()
        for service in FAULTS[fault]:
            for pid in python_workers(cluster) if service == "worker" else kept_processes(cluster, service):
                os.kill(pid, signal.SIGKILL)
        clients = [threading.Thread(target=ask, args=(cluster, name, begun, back)) for name in JOBS]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        times.append(max(back.values()))
        shown = ", ".join(f"{name} {seconds:.1f}" for name, seconds in sorted(back.items()))
        print(f"{fault}: {shown} s; load {os.getloadavg()[0]:.1f}", flush=True)
    print(f"{fault}: back after {statistics.median(times):.1f} s (median), {max(times):.1f} s at most", flush=True)


def ask(cluster, name, begun, back):
    """Note when a request that is sent after the fault has its answer."""
    time.sleep(0.5)
    while time.monotonic() < begun + PATIENCE:
        try:
            with InputQueue(port=cluster.redis_port, name=name) as requests:
                requests.predict({"x": np.ones(3)}, timeout=PATIENCE)
            back[name] = time.monotonic() - begun
            return
        except ServingError:
            time.sleep(0.1)


if __name__ == "__main__":
    main()
