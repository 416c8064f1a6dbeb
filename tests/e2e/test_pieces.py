"""Answers in pieces from a job: what a client sees of crashes and changes."""

import os
import signal
import threading

import numpy as np

from cluster_serving.client import Restarted
from tests.chaos.faults import kept_processes
from tests.support.fixtures import both_modes
from tests.support.fixtures.handled import write

SLOW = """
    import time
    from cluster_serving.job.handlers import END

    class Handler:
        inputs = {"count": "int64"}

        def predict(self, batch):
            for step in range(batch["count"].max()):
                yield [{"number": step} if step < count else END for count in batch["count"]]
                time.sleep(0.05)
    """


def ask(queue, count, **options):
    return queue.stream({"count": np.int64(count)}, timeout=60, **options)


def numbers(pieces):
    return [int(piece["number"]) for piece in pieces]


def test_pieces_of_process_mode_arrive_as_they_are_made(started, tmp_path):
    both_modes.pieces_arrive_as_they_are_made(started, tmp_path, executionMode="process")


def test_a_killed_taskmanager_restarts_the_answer(started, cluster, tmp_path):
    queue, _ = started(jobName="pieces-killed", modelPath=write(tmp_path, SLOW))
    pieces = ask(queue, 60)
    assert numbers(next(pieces) for _ in range(3)) == [0, 1, 2]
    for pid in kept_processes(cluster, "taskmanager"):
        os.kill(pid, signal.SIGKILL)
    rest = list(pieces)
    restarts = [index for index, piece in enumerate(rest) if isinstance(piece, Restarted)]
    assert restarts
    assert numbers(rest[restarts[-1] + 1 :]) == [*range(60)]


def test_an_update_lets_answers_end(started, cluster, tmp_path):
    queue, _ = started(jobName="pieces-updated", modelPath=write(tmp_path, SLOW))
    got = []
    reader = threading.Thread(target=lambda: got.extend(ask(queue, 400)))
    reader.start()
    write(tmp_path, SLOW.replace('"number": step', '"number": step + 1000'))
    updated = cluster.restart("pieces-updated")
    assert updated.returncode == 0, updated.stdout + updated.stderr
    assert numbers(ask(queue, 2)) == [1000, 1001]
    reader.join()
    # The old generation answers what it has begun.
    assert numbers(got) == [*range(400)]
