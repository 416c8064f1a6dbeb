"""Ten causes of "it is slow since noon": each shows in a figure of its own, beside what a healthy job has."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import numpy as np
import pytest
import redis

from cluster_serving.client import InferenceFailed, InputQueue
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.protocol.figures.exposition import exposition
from tests.chaos.faults import kept_processes
from tests.e2e.test_metrics import Samples
from tests.support.fixtures.handled import write
from tests.support.fixtures.redis_server import RedisServer
from tests.support.fixtures.waiting import wait_until

JOB = "since-noon"
RECORDS = 64

# Computes for 2 ms, and then as long as the file says.
HANDLER = """
    import time
    from pathlib import Path

    class Handler:
        inputs = {"x": "float32[?]"}
        outputs = {"y": "float32"}

        def predict(self, batch):
            began = time.thread_time()
            while time.thread_time() < began + 0.002:
                pass
            time.sleep(float((Path(__file__).parents[1] / "pause").read_text()))
            return [{"y": x[0]} if x[0] >= WORST else ValueError("too small") for x in batch["x"]]
    """


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    """A folder on a disk of 64 MiB."""
    folder = tmp_path_factory.mktemp("disk")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder], capture_output=True)
    yield folder, mounted.returncode == 0
    subprocess.run(["umount", "-l", folder], capture_output=True)


@pytest.fixture(scope="module")
def server(disk):
    server = RedisServer(disk[0])
    yield server
    server.stop()


@pytest.fixture(scope="module")
def job(cluster, server, tmp_path_factory):
    """A job of two slots that runs until the module ends."""
    models = tmp_path_factory.mktemp("model")
    job = Job(cluster, server, models)
    job.pause(0.01)
    job.add_version(1, worst=-1)
    done = cluster.start(
        jobName=JOB,
        modelPath=models,
        redisUrl=f"127.0.0.1:{server.port}",
        modelParallelism=2,
        maxBatchSize=8,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with redis.Redis(port=server.port, decode_responses=True) as client:
        job.store = JobStore(client, JOB)
        yield job
    cluster.stop(JOB)


@pytest.fixture(scope="module")
def healthy(job):
    """The figures of the job while all is well."""
    return job.figures(job.work)


class Job:
    def __init__(self, cluster, server, models):
        self.cluster, self.server, self.models = cluster, server, models
        self.sent = 0

    def pause(self, seconds):
        """Let each batch take longer by so many seconds."""
        new = self.models / ".pause"
        new.write_text(str(seconds))
        new.replace(self.models / "pause")

    def add_version(self, number, worst):
        folder = self.models / f".{number}"
        folder.mkdir()
        write(folder, HANDLER.replace("WORST", str(worst)))
        folder.rename(self.models / str(number))

    def queue(self):
        return InputQueue(port=self.server.port, name=JOB)

    def work(self, times=8, records=RECORDS, shape=lambda number: 4):
        """Have records computed that a client sends in pieces."""
        with self.queue() as queue:
            for _ in range(times):
                inputs = [{"x": np.full(shape(number), 3, "f4")} for number in range(records)]
                assert len(list(queue.predict_many(inputs, timeout=120))) == records
                self.sent += records

    def samples(self):
        """The metrics of the job, as the command and the front end print them."""
        return Samples(exposition([self.store.reading()]), JOB)

    def settled(self):
        """The metrics once the slots have written all that they know of what was sent."""

        def is_settled():
            found = self.samples()
            done = found.sum("records_answered_total") + found.sum("records_failed_total")
            return done == self.sent and found.sum("client_requests_total") == found.sum("requests_in_total")

        wait_until(is_settled)
        return self.samples()

    def figures(self, work):
        """What the metrics tell of some work."""
        before = self.settled()
        work()
        return Figures(before, self.settled())

    def cpu_wait(self):
        """Seconds for which the process has waited for a processor, for each that it had, while records are computed.

        The slots write these figures every five seconds.
        """
        ended = threading.Event()

        def work():
            while not ended.is_set():
                self.work(times=1)

        def figures():
            return [self.samples().sum(f"cpu_{name}seconds_total", slot="0") for name in ("wait_", "")]

        client = threading.Thread(target=work)
        client.start()
        values = [figures()]
        while len(values) < 3:
            wait_until(lambda: figures() not in values)
            values.append(figures())
        ended.set()
        client.join()
        waited, used = (after - before for before, after in zip(*values[1:], strict=True))
        return waited / used


class Figures:
    """The difference of two readings of the metrics, as the panels of the dashboard show it."""

    def __init__(self, before, after):
        def grown(name, **labels):
            return after.sum(name, **labels) - before.sum(name, **labels)

        def mean(name):
            return grown(f"{name}_sum") / max(1, grown(f"{name}_count"))

        self.inference, self.write, self.batch_size = map(mean, ("inference_seconds", "write_seconds", "batch_size"))
        self.redis = after.sum("redis_round_trip_seconds")
        self.failed = grown("records_failed_total")
        clients = after.values("client_requests_total", "client")
        self.clients = {client: grown("client_requests_total", client=client) for client in clients}
        self.after = after


def test_a_slow_model_shows_in_its_inference_time(job, healthy):
    job.pause(0.2)
    slow = job.figures(lambda: job.work(times=1))
    job.pause(0.01)
    assert slow.inference > 5 * healthy.inference
    # Its batches are as large, and Redis is as fast.
    assert slow.batch_size > healthy.batch_size / 2 and slow.redis < slow.inference / 2


def test_a_slow_redis_shows_in_its_round_trip(job, healthy):
    ended = threading.Event()

    def work():
        wait_until(lambda: job.samples().sum("redis_round_trip_seconds") > 5 * healthy.redis)
        job.work(times=2)

    def disturb():
        """Commands that take long, as those of another user of Redis may."""
        with redis.Redis(port=job.server.port) as client:
            while not ended.is_set():
                client.eval("for i = 1, 2e7 do end", 0)

    other = threading.Thread(target=disturb)
    other.start()
    try:
        slow = job.figures(work)
    finally:
        ended.set()
        other.join()
    assert slow.write > 5 * healthy.write
    # The model is as fast.
    assert slow.inference < 5 * healthy.inference


def test_a_frozen_task_manager_shows_by_its_silent_slots(job, healthy):
    assert healthy.after.sum("slots", state="ready") == 2
    (first,) = kept_processes(job.cluster, "taskmanager")
    os.kill(first, signal.SIGSTOP)
    try:
        wait_until(lambda: job.samples().sum("slots", state="silent") == 2, 60)
        shown = job.cluster.run("cluster-serving-cli", "status", cwd=job.cluster.folder / JOB).stdout
    finally:
        os.kill(first, signal.SIGCONT)
    assert "2, 0 of them ready" in shown and "silent" in shown
    wait_until(lambda: job.samples().sum("slots", state="ready") == 2, 60)


HOT = """
import sys
import numpy as np
from cluster_serving.client import InputQueue
with InputQueue(port=int(sys.argv[1]), name=sys.argv[2]) as queue:
    for _ in range(200):
        queue.predict({"x": np.ones(4, "f4")}, timeout=60)
"""


def test_a_hot_client_shows_by_its_share_of_the_requests(job, healthy):
    processes = []

    def work():
        with subprocess.Popen([sys.executable, "-c", HOT, str(job.server.port), JOB]) as other:
            processes.append(other)
            job.work(times=1)
        assert other.returncode == 0

        job.sent += 200

    hot = job.figures(work)
    (busiest,) = [name for name, count in hot.clients.items() if count == max(hot.clients.values())]
    # The name ends with the process id.
    assert int(busiest[16:], 16) == processes[0].pid
    assert hot.clients[busiest] == 200 > 0.8 * sum(hot.clients.values())
    (usual,) = [name for name, count in healthy.clients.items() if count]
    assert int(usual[16:], 16) == os.getpid()


def test_a_queue_that_fills_shows_by_its_length_and_its_oldest_request(job, healthy):
    job.pause(0.1)
    with job.queue() as queue:
        for number in range(200):
            queue.enqueue(f"r{number}", x=np.ones(4, "f4"))
            job.sent += 1
    wait_until(lambda: job.samples().sum("oldest_waiting_seconds") > 0)
    filled = job.samples()
    job.pause(0.01)
    # More than both slots have taken.
    assert filled.sum("queue_length") > 32 > healthy.after.sum("queue_length")
    assert healthy.after.sum("oldest_waiting_seconds") == 0
    job.settled()


def test_small_batches_show_by_their_size(job, healthy):
    small = job.figures(lambda: job.work(times=1, shape=lambda number: number + 1))
    assert healthy.batch_size > 4 and small.batch_size < 2
    # A batch takes no longer than before, and there are more of them.
    assert small.inference < 5 * healthy.inference


def test_dead_letters_show_by_their_number_and_code(job, healthy):
    def work():
        with job.queue() as queue, pytest.raises(InferenceFailed):
            queue.predict({"x": np.full(4, -2, "f4")}, timeout=60)
        job.sent += 1

    dead = job.figures(work)
    assert healthy.failed == healthy.after.sum("dead_letters") == 0
    assert dead.failed == dead.after.sum("dead_letters") == dead.after.sum("requests_given_up_total") == 1
    assert dead.after.sum("records_failed_total", code="INFERENCE_FAILED") == 1


def test_a_full_disk_shows_by_what_redis_says_of_it(job, healthy, disk):
    folder, is_mounted = disk
    if not is_mounted:
        pytest.skip("needs the right to mount a disk")
    assert healthy.after.sum("redis_disk_failed") == 0 < healthy.after.sum("disk_free_bytes")
    filler = folder / "filler"
    with filler.open("wb") as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(1 << 20))
    ended = threading.Event()

    def send():
        with redis.Redis(port=job.server.port) as client:
            while not ended.is_set():
                try:
                    client.set("other", bytes(1 << 16))
                except redis.RedisError:
                    time.sleep(0.1)

    other = threading.Thread(target=send)
    other.start()
    try:
        wait_until(lambda: job.samples().sum("redis_disk_failed") == 1)
        shown = job.cluster.run("cluster-serving-cli", "status", cwd=job.cluster.folder / JOB).stdout
    finally:
        ended.set()
        other.join()
        filler.unlink()
    assert "MISCONF" in shown
    wait_until(lambda: job.samples().sum("redis_disk_failed") == 0)
    job.work(times=1)


def test_a_bad_version_shows_by_the_failures_of_this_version_and_since_when(job, healthy):
    job.add_version(2, worst=2)
    before = job.settled()
    done = job.cluster.run("cluster-serving-cli", "update", cwd=job.cluster.folder / JOB)
    assert done.returncode == 0, done.stdout + done.stderr
    with job.queue() as queue:
        for _ in range(4):
            with pytest.raises(InferenceFailed):
                queue.predict({"x": np.ones(4, "f4")}, timeout=60)
    job.sent += 4
    after = job.settled()
    assert after.sum("records_failed_total", version="2") == 4
    assert after.sum("records_answered_total", version="2") == 0
    assert after.sum("records_failed_total", version="1") == before.sum("records_failed_total", version="1")
    events = json.loads(job.cluster.run("cluster-serving-cli", "events", "--json", cwd=job.cluster.folder / JOB).stdout)
    assert any("version 2: serving" in event["what"] for event in events)


# The last one: a slot that is late has its requests taken over, and some are computed twice.
@contextmanager
def starved(pid):
    """A process whose only processor other programs have, too."""
    all_, one = os.sched_getaffinity(0), {min(os.sched_getaffinity(0))}

    def bind(processors):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), processors)

    bind(one)
    # Linux shares a processor among sessions, and only then among the processes of each.
    options = {"stdout": subprocess.DEVNULL, "start_new_session": True}
    programs = [subprocess.Popen(["yes"], **options) for _ in range(12)]
    for program in programs:
        os.sched_setaffinity(program.pid, one)
    try:
        yield
    finally:
        bind(all_)
        for program in programs:
            program.kill()
            program.wait()


def test_stolen_processors_show_by_the_time_that_processes_wait_for_one(job, healthy):
    usual = job.cpu_wait()
    (pid,) = kept_processes(job.cluster, "taskmanager")
    with starved(pid):
        assert job.cpu_wait() > 2 * usual
