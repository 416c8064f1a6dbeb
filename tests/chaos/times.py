"""Longest times without an answer from three jobs, or more, after each fault, on a machine that does nothing else.

python -m tests.chaos.times --repeat 3
python -m tests.chaos.times --jobs 18 --faults TaskManager
"""

import argparse
import itertools
import os
import signal
import statistics
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from cluster_serving.client import InputQueue, ServingError
from tests.chaos.faults import kept_processes, python_workers
from tests.support.fixtures.cluster import Cluster
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo

JOBS = {"one": "thread", "two": "thread", "three": "process"}
"""Jobs by their execution mode; further ones run in threads."""

SERVICES = ("taskmanager", "jobmanager", "redis")
FAULTS = {
    "TaskManager": ("taskmanager",),
    "JobManager": ("jobmanager",),
    "both": ("taskmanager", "jobmanager"),
    "everything": SERVICES,
    "Python worker": ("worker",),
}
WATCHED = 60.0
"""Seconds for which jobs are watched after a fault: those of a JobManager that died go on until Flink notices."""

TIMEOUT = 300.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--faults", default=",".join(FAULTS), help="names separated by commas; default: all")
    parser.add_argument("--jobs", type=int, default=len(JOBS), help="number of jobs, all in one TaskManager")
    options = parser.parse_args()
    jobs = JOBS | {f"job-{number}": "thread" for number in range(len(JOBS) + 1, options.jobs + 1)}
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder))
        try:
            start(cluster, Path(folder, "model"), jobs)
            for fault in options.faults.split(","):
                measure(cluster, fault, options.repeat, jobs)
        finally:
            cluster.shutdown()


def start(cluster, model, jobs):
    from openvino import opset13 as ops

    model.mkdir()
    x = ops.parameter([-1, -1], np.float64, name="x")
    model_zoo.save_openvino(model, {"x": x}, {"y": ops.multiply(x, ops.constant(np.float64(2)))})
    for name, mode in jobs.items():
        begun = time.monotonic()
        done = cluster.start(jobName=name, modelPath=model, executionMode=mode, slotsPerTaskManager=max(8, len(jobs)))
        assert done.returncode == 0, done.stdout + done.stderr
        print(f"started {name} in {time.monotonic() - begun:.1f} s", flush=True)


def measure(cluster, fault, repeat, jobs):
    longest = []
    for _ in range(repeat):
        answers = {name: [] for name in jobs}
        stopped = threading.Event()
        clients = [threading.Thread(target=ask, args=(cluster, *job, stopped)) for job in answers.items()]
        for client in clients:
            client.start()
        wait_until(lambda answers=answers: all(answers.values()))
        begun = time.monotonic()
        for service in FAULTS[fault]:
            for pid in python_workers(cluster) if service == "worker" else kept_processes(cluster, service):
                os.kill(pid, signal.SIGKILL)
        over = begun + WATCHED
        wait_until(lambda answers=answers, over=over: all(times[-1] > over for times in answers.values()), TIMEOUT)
        stopped.set()
        for client in clients:
            client.join()
        away = {
            name: max(later - sooner for sooner, later in itertools.pairwise(times)) for name, times in answers.items()
        }
        longest.append(max(away.values()))
        shown = ", ".join(f"{name} {seconds:.1f}" for name, seconds in sorted(away.items()))
        print(f"{fault}: {shown} s; load {os.getloadavg()[0]:.1f}", flush=True)
    print(f"{fault}: away for {statistics.median(longest):.1f} s (median), {max(longest):.1f} s at most", flush=True)


def ask(cluster, name, answers, stopped):
    """Send one request after another, and note when each has its answer."""
    while not stopped.wait(0.2):
        with suppress(ServingError), InputQueue(port=cluster.redis_port, name=name) as requests:
            requests.predict({"x": np.ones(3)}, timeout=TIMEOUT)
            answers.append(time.monotonic())


if __name__ == "__main__":
    main()
