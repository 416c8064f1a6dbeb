"""A YARN cluster that the environment names, and the commands for it; whose nodes have nothing of ours."""

import os
import secrets
import socket
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from cluster_serving.client import InputQueue
from cluster_serving.launcher.targets.yarn.application import TAG, YarnApplications
from cluster_serving.launcher.targets.yarn.files import HadoopFiles
from cluster_serving.launcher.targets.yarn.hadoop import Hadoop
from cluster_serving.launcher.targets.yarn.rest import ACTIVE, YarnRest
from tests.support.fixtures.commands import run
from tests.support.fixtures.redis_server import RedisServer

VARIABLES = ("HADOOP_CONF_DIR", "HADOOP_CLASSPATH")


def require():
    """Skip a test where no YARN cluster is named."""
    if missing := [name for name in VARIABLES if not os.environ.get(name)]:
        pytest.skip(f"{' and '.join(missing)} not set: CONTRIBUTING.md tells how to give the tests a YARN cluster")


class Yarn:
    """The commands, run by a user who has no rights on the nodes, with a Redis that the nodes can reach.

    What is staged goes to a folder of its own.
    """

    def __init__(self, folder):
        self.folder = folder
        self.hadoop = Hadoop()
        manager = urlsplit(self.hadoop.resource_managers()[0])
        (folder / "redis").mkdir()
        self.redis = RedisServer(
            folder / "redis", host=_address_towards(manager.hostname), password=secrets.token_hex(8)
        )
        with self.hadoop.client() as jvm:
            self.staging = f"{HadoopFiles(jvm, '').folder}-test-{secrets.token_hex(4)}"
        self._environment = os.environ | {"CLUSTER_SERVING_HOME": str(folder / "state"), "COLUMNS": "200"}

    def close(self):
        with self.hadoop.client() as jvm:
            HadoopFiles(jvm, "").remove(self.staging)
        self.redis.stop()

    def configure(self, model, flink=None, **settings):
        """Write the configuration of the job `digits`."""
        target = {"target": "yarn-application", "staging": self.staging, **(flink or {})}
        given = {"modelPath": str(model), "jobName": "digits", "redisUrl": self.redis.url, "startTimeout": 240}
        (self.folder / "config.yaml").write_text(yaml.safe_dump(given | {"flink": target} | settings))

    def run(self, command, *arguments):
        return run(command, *arguments, cwd=self.folder, environment=self._environment, timeout=600)

    def queue(self):
        return InputQueue(url=self.redis.url, name="digits")

    def application(self):
        """The ResourceManager's description of the job that runs; None if none does."""
        with YarnApplications(self.hadoop) as applications:
            found = [raw for raw in applications.applications(ended=False) if raw.name == "digits"]
        return found[0] if found else None

    def applications(self):
        """The ResourceManager's descriptions of all applications of the job, of which each generation has one."""
        with YarnRest(self.hadoop.resource_managers()) as rest:
            found = rest.applications(ACTIVE, self.hadoop.user, TAG)
        return [raw for raw in found if raw["name"] == "digits"]

    def attempt(self, application):
        """The container of the ApplicationMaster, of its latest attempt."""
        with YarnRest(self.hadoop.resource_managers()) as rest:
            found = httpx.get(f"{rest.url}/ws/v1/cluster/apps/{application}/appattempts").json()
        return found["appAttempts"]["appAttempt"][-1]["containerId"]

    def taskmanagers(self):
        """The containers of the TaskManagers; none while Flink does not answer."""
        found = self.application()
        try:
            raw = httpx.get(f"{found.url}/taskmanagers").json()["taskmanagers"] if found and found.url else []
        except (httpx.HTTPError, ValueError):
            return set()
        return {manager["id"].partition("(")[0] for manager in raw}

    def kill(self, container):
        """Let YARN kill the processes of a container at once."""
        with self.hadoop.client() as jvm:
            yarn = jvm.org.apache.hadoop.yarn
            client = yarn.client.api.YarnClient.createYarnClient()
            client.init(yarn.conf.YarnConfiguration())
            client.start()
            records = yarn.api.records
            container = records.ContainerId.fromString(container)
            client.signalToContainer(container, records.SignalContainerCommand.FORCEFUL_SHUTDOWN)

    def leftovers(self):
        """The folders in which Flink keeps what its applications need, of those of the tests."""
        with self.hadoop.client() as jvm:
            return HadoopFiles(jvm, "").names(".flink")


def _address_towards(host):
    """The address of this machine in the network of a host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return probe.getsockname()[0]
