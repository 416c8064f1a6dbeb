"""Changes of a job under load: nothing is lost, each answer is right for the version that it names, and no gap."""

import json
import os
import shutil
import signal
import threading
import time
from collections import Counter

import numpy as np
import pytest
import redis

from cluster_serving.client import InputQueue, ServingError, VersionNotFound
from cluster_serving.protocol.generations import Generations
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import HEARTBEAT_S
from tests.chaos.faults import kept_processes
from tests.support.fixtures.cluster import running
from tests.support.fixtures.redis_server import free_port
from tests.support.fixtures.waiting import PAUSE_S, wait_until
from tests.support.payloads import model_zoo


def save_factor(folder, factor):
    """Save a model that multiplies its input, in place of the one before."""
    shutil.rmtree(folder, ignore_errors=True)
    model_zoo.save_openvino_product(folder, factor)


class Load:
    """Clients that send requests one after the other, and keep what comes back by version."""

    def __init__(self, cluster, job, clients=3):
        self.answers = Counter()
        self.problems = []
        self._stopped = threading.Event()
        self._queues = [InputQueue(port=cluster.redis_port, name=job) for _ in range(clients)]
        self._threads = [threading.Thread(target=self._run, args=(queue,)) for queue in self._queues]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _run(self, queue):
        number = 0
        while not self._stopped.wait(PAUSE_S):
            number += 1
            x = np.full(4, number % 97 + 1, "float32")
            try:
                result = queue.predict({"x": x}, timeout=60)
                self.answers[result.version, round(float(result[0]) / float(x[0]))] += 1
            except ServingError as error:
                self.problems.append(error)

    def versions_of_next(self, count):
        """Versions of the next answers, and their numbers."""
        before = self.answers.copy()
        wait_until(lambda: sum(self.answers.values()) >= sum(before.values()) + count, 60)
        numbers = Counter()
        for (version, _), seen in (self.answers - before).items():
            numbers[version] += seen
        return numbers


@pytest.fixture
def cli(cluster):
    def run(*words, folder="changing"):
        return cluster.run("cluster-serving-cli", *words, cwd=cluster.folder / folder)

    return run


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory):
    """A cluster for the tests that end its processes."""
    with running(tmp_path_factory.mktemp("own")) as cluster:
        yield cluster


def done(command):
    assert command.returncode == 0, command.stdout + command.stderr
    return command.stdout


def generations_of(db, job):
    return Generations.read(db.hgetall(JobKeys(job).generations))


# Six changes, with the CPU time of a start each.
@pytest.mark.timeout(600)
def test_a_job_is_changed_in_every_way_under_load(cluster, cluster_db, tmp_path, cli):
    folder, job = tmp_path / "model", "changing"
    save_factor(folder, 1)
    done(cluster.start(jobName=job, modelPath=folder))
    with Load(cluster, job) as load:
        assert set(load.versions_of_next(10)) == {"1"}

        # The files are replaced in place.
        save_factor(folder, 10)
        told = done(cluster.restart(job))
        assert "Switched to generation 2" in told and "Generation 1 has ended" in told
        assert "requests answered in" in told
        assert set(load.versions_of_next(10)) == {"2"}

        (folder / "model.xml").write_text("<net")
        broken = cli("update")
        assert broken.returncode == 1
        assert f"job {job} goes on as it was" in broken.stderr.replace("\n", " "), broken.stderr
        assert set(load.versions_of_next(10)) == {"2"}

        # The generation before had files that are not there any more.
        done(cli("rollback"))
        rolled_back = generations_of(cluster_db, job).serving.version
        assert set(load.versions_of_next(10)) == {rolled_back}

        done(cli("scale", "2"))
        status = json.loads(done(cli("status", "--json")))
        assert (status["slots"], [each["role"] for each in status["generations"]]) == (2, ["serving"])

        save_factor(folder, 100)
        done(cli("update", "--canary", "25"))
        now = generations_of(cluster_db, job)
        canary, serving = now.trial.version, now.serving.version
        shares = load.versions_of_next(400)
        assert set(shares) == {canary, serving}
        assert abs(shares[canary] / sum(shares.values()) - 0.25) < 0.03
        shown = done(cli("status"))
        assert "canary with 25 %" in shown and "serving" in shown
        with cluster.variables(CLUSTER_SERVING_FLINK_REST_URL=f"localhost:{free_port()}"):
            seen_from_another_flink = json.loads(done(cli("status", "--json")))
        assert [each["state"] for each in seen_from_another_flink["generations"]] == ["RUNNING", "RUNNING"]
        refused = cli("update")
        assert refused.returncode == 1 and "cluster-serving-cli promote" in refused.stderr.replace("\n", " ")
        queue = InputQueue(port=cluster.redis_port, name=job)
        for version, factor in ((canary, 100), (serving, 1)):
            assert queue.predict({"x": np.ones(4, "float32")}, timeout=30, version=version)[0] == factor
        with pytest.raises(VersionNotFound, match=f"served are: {serving}, {canary}"):
            queue.predict({"x": np.ones(4, "float32")}, timeout=30, version="99")

        done(cli("promote"))
        assert set(load.versions_of_next(10)) == {canary}
        assert [each.role for each in generations_of(cluster_db, job).all.values()] == ["serving"]
    assert not load.problems
    factors = {"1": 1, "2": 10, rolled_back: 1, serving: 1, canary: 100}
    assert {version: factor for version, factor in load.answers} == factors
    assert len(load.answers) == len(factors)
    cluster.stop(job)


def test_a_command_that_is_killed_in_the_middle_of_a_change_leaves_the_job_as_it_was(
    cluster, cluster_db, tmp_path, cli
):
    job = "halved"
    save_factor(tmp_path / "model", 1)
    done(cluster.start(jobName=job, modelPath=tmp_path / "model"))
    with Load(cluster, job) as load:
        with cluster.running("cluster-serving-restart", cluster.folder / job) as restart:
            wait_until(lambda: len(generations_of(cluster_db, job).all) == 2, 60)
            # A second change is refused while the first one is under way, which has to last.
            restart.send_signal(signal.SIGSTOP)
            second = cli("update", folder=job)
            assert second.returncode == 1 and "is being changed by" in second.stderr.replace("\n", " "), second.stderr
            restart.kill()
        assert set(load.versions_of_next(10)) == {"1"}
        time.sleep(1)
        wait_until(lambda: cli("update", folder=job).returncode == 0, 120)
        now = generations_of(cluster_db, job)
        assert [each.role for each in now.all.values()] == ["serving"]
        assert set(load.versions_of_next(10)) == {now.serving.version}
        # Requests wait while the job is stopped in between.
        told = done(cli("update", "--in-place", folder=job))
        assert "Stopping job" in told and "Switched" not in told
        last = generations_of(cluster_db, job).serving.version
        assert int(last) > int(now.serving.version)
        wait_until(lambda: set(load.versions_of_next(10)) == {last})
    assert not load.problems
    cluster.stop(job)


@pytest.mark.xdist_group("own cluster of changes")
def test_a_change_outlives_the_death_of_the_job_manager(own_cluster, tmp_path):
    """The new generation serves already, and both are other jobs of Flink from then on."""
    job = "bereft"
    save_factor(tmp_path / "model", 1)
    done(own_cluster.start(jobName=job, modelPath=tmp_path / "model"))
    save_factor(tmp_path / "model", 10)
    with redis.Redis(port=own_cluster.redis_port) as db, Load(own_cluster, job) as load:
        with own_cluster.running("cluster-serving-restart", own_cluster.folder / job) as restart:
            wait_until(lambda: any(each.role == "retiring" for each in generations_of(db, job).all.values()), 60)
            manager, *_ = kept_processes(own_cluster, "jobmanager")
            os.kill(manager, signal.SIGKILL)
            output, _ = restart.communicate(timeout=150)
            assert restart.returncode == 0, output
        now = generations_of(db, job)
        assert [each.role for each in now.all.values()] == ["serving"]
        assert set(load.versions_of_next(10)) == {now.serving.version}
        wait_until(lambda: len(own_cluster.running_jobs(job)) == 1, 60)
    assert not load.problems
    assert {factor for _, factor in load.answers} == {1, 10}
    done(own_cluster.stop(job))


@pytest.mark.xdist_group("own cluster of changes")
def test_generations_that_redis_has_lost_are_there_again(own_cluster, tmp_path):
    job = "flushed"
    save_factor(tmp_path / "model", 1)
    done(own_cluster.start(jobName=job, modelPath=tmp_path / "model"))
    save_factor(tmp_path / "model", 10)
    folder = own_cluster.folder / job
    with redis.Redis(port=own_cluster.redis_port) as db:
        done(own_cluster.run("cluster-serving-cli", "update", "--canary", "50", cwd=folder))
        before = generations_of(db, job)
        with Load(own_cluster, job) as load:
            assert len(load.versions_of_next(50)) == 2
            # Redis may lose all again before each slot has noticed the first loss.
            for _ in range(20):
                db.flushall()
                time.sleep(HEARTBEAT_S / 10)
            wait_until(lambda: generations_of(db, job).all == before.all, 30)
            assert len(load.versions_of_next(100)) == 2
            manager, *_ = kept_processes(own_cluster, "taskmanager")
            os.kill(manager, signal.SIGKILL)
            assert len(load.versions_of_next(100)) == 2
            done(own_cluster.run("cluster-serving-cli", "promote", cwd=folder))
            assert set(load.versions_of_next(20)) == {before.trial.version}
    # Requests that Redis has lost are sent again.
    assert not load.problems
