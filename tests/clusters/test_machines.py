"""A cluster of machines that have Flink and nothing of ours: JobManager, two TaskManagers and Redis on hosts apart."""

import os
import shutil
from pathlib import Path

import httpx
import pyflink
import pytest
import redis
import yaml

from cluster_serving.client import InputQueue
from cluster_serving.launcher.services import redis_program
from cluster_serving.launcher.services.flink_home import java_home
from tests.support.fixtures.asking import Asking
from tests.support.fixtures.commands import run
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo
from tests.support.worlds import hosts


class Machines:
    """The hosts, their Flink as its distribution has it, and a folder of a user who has no rights on them."""

    def __init__(self, folder, flink, java, network):
        self.flink = flink
        self.java = java
        self.main, self.store, *self.workers = [network.host() for _ in range(4)]
        self.folder = folder
        self._environment = os.environ | {"CLUSTER_SERVING_HOME": str(folder / "state"), "COLUMNS": "200"}
        server = redis_program.find()
        self.store.start(server, "--bind", "0.0.0.0", "--protected-mode", "no", "--appendonly", "yes")
        self._start(self.main, "jobmanager.sh")
        for worker in self.workers:
            self.start_worker(worker)
        wait_until(lambda: self.slots() == 4, 180)

    def start_worker(self, worker):
        self._start(worker, "taskmanager.sh")

    def _start(self, host, script):
        conf = host.folder / "conf"
        conf.mkdir(exist_ok=True)
        (conf / "config.yaml").write_text(yaml.safe_dump(self._options(host)))
        for file in (self.flink / "conf").glob("log4j-console.properties"):
            shutil.copy(file, conf)
        host.start(
            self.flink / "bin" / script,
            "start-foreground",
            JAVA_HOME=self.java,
            FLINK_CONF_DIR=conf,
            FLINK_LOG_DIR=host.folder,
        )

    def _options(self, host):
        given = yaml.safe_load((self.flink / "conf" / "config.yaml").read_text())
        return {"env.java.opts.all": given["env"]["java"]["opts"]["all"]} | {
            "jobmanager.rpc.address": self.main.address,
            "jobmanager.bind-host": "0.0.0.0",
            "jobmanager.memory.process.size": "1g",
            "rest.address": self.main.address,
            "rest.bind-address": "0.0.0.0",
            "taskmanager.host": host.address,
            "taskmanager.bind-host": "0.0.0.0",
            "taskmanager.numberOfTaskSlots": 2,
            "taskmanager.memory.process.size": "1500m",
            # A machine that is cut off is noticed in seconds.
            "heartbeat.interval": "1 s",
            "heartbeat.timeout": "8 s",
        }

    @property
    def rest(self):
        return f"http://{self.main.address}:8081"

    def slots(self):
        try:
            # Until its resource manager leads, Flink answers with errors.
            return httpx.get(f"{self.rest}/overview").json().get("slots-total", 0)
        except (httpx.TransportError, ValueError):
            return 0

    def is_idle(self):
        found = httpx.get(f"{self.rest}/overview").json()
        return found["jobs-running"] == 0 and found["slots-available"] == found["slots-total"]

    def run(self, command, *arguments):
        return run(command, *arguments, cwd=self.folder, environment=self._environment, timeout=250)

    def queue(self):
        return InputQueue(host=self.store.address, port=6379, name="digits")


@pytest.fixture
def machines(tmp_path):
    hosts.require()
    flink, java = hosts.folder("flink"), java_home().resolve()
    try:
        for name in ("bin", "lib", "plugins", "conf"):
            shutil.copytree(Path(pyflink.__file__).parent / name, flink / name)
        with hosts.Network(flink, java, redis_program.find().parent) as network:
            yield Machines(tmp_path, flink, java, network)
    finally:
        shutil.rmtree(flink)


@pytest.mark.timeout(900)
def test_machines_with_nothing_but_flink_serve_and_lose_nothing_when_one_is_cut_off(machines):
    model_zoo.save_openvino_digits(machines.folder / "model")
    addresses = {
        "redisUrl": f"{machines.store.address}:6379",
        "flinkRestUrl": f"{machines.main.address}:8081",
    }
    (machines.folder / "config.yaml").write_text(
        yaml.safe_dump({"modelPath": "model", "jobName": "digits", "modelParallelism": 2} | addresses)
    )
    started = machines.run("cluster-serving-start")
    assert started.returncode == 0, started.stdout + started.stderr
    assert "Submitting job digits, with " in started.stdout

    asking = Asking(machines.queue)
    asking.start()
    try:
        asking.goes_on()
        changed = machines.run("cluster-serving-restart")
        assert changed.returncode == 0, changed.stdout + changed.stderr
        assert "Generation 1 has ended" in changed.stdout
        asking.goes_on()
        # Nothing of the machine that submitted is needed any more.
        shutil.rmtree(machines.folder / "state")
        shutil.rmtree(machines.folder / "model")
        busy = next(worker for worker in machines.workers if worker.address in taskmanagers_at_work(machines))
        busy.cut_off()
        wait_until(lambda: machines.slots() == 2, 120)
        asking.goes_on()
        busy.reconnect()
        wait_until(lambda: machines.slots() == 4, 120)
        asking.goes_on()
        for worker in machines.workers:
            worker.kill()
        for worker in machines.workers:
            machines.start_worker(worker)
        asking.goes_on()
    finally:
        asking.stop()
    with redis.Redis(host=machines.store.address) as client:
        assert client.xlen("digits") == 0

    stopped = machines.run("cluster-serving-stop", "digits")
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    wait_until(machines.is_idle, 60)


def taskmanagers_at_work(machines):
    """The addresses of the TaskManagers that run a part of a job."""
    found = httpx.get(f"{machines.rest}/taskmanagers").json()["taskmanagers"]
    return {
        manager["path"].partition("@")[2].rpartition(":")[0]
        for manager in found
        if manager["freeSlots"] < manager["slotsNumber"]
    }
