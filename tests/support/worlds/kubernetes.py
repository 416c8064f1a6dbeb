"""A namespace of the Kubernetes that the environment names, and the commands for jobs in it."""

import json
import os
import secrets
import shutil
import socket
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
import yaml

from cluster_serving.client import InputQueue
from cluster_serving.launcher.services.flink_home import FlinkHome
from cluster_serving.launcher.targets.applications import SETTINGS
from cluster_serving.launcher.targets.kubernetes.deployments import LABEL, OURS
from tests.support.fixtures.commands import run
from tests.support.fixtures.redis_server import RedisServer
from tests.support.fixtures.waiting import wait_until
from tests.support.worlds import containers
from tests.support.worlds.containers import SLOW, call

IMAGE = os.environ.get("CLUSTER_SERVING_TEST_IMAGE") or (containers.image("flink") if containers.TAG else "")
"""Image with Flink and this package, which the nodes have or can pull."""

_NONE = "kube-root-ca.crt"


def require():
    """Skip a test where no cluster and no image are named."""
    if not (os.environ.get("KUBECONFIG") and shutil.which("kubectl") and IMAGE):
        pytest.skip(
            "needs kubectl, KUBECONFIG, and CLUSTER_SERVING_TEST_IMAGE or CLUSTER_SERVING_TEST_TAG: CONTRIBUTING.md "
            "tells how to give the tests a Kubernetes"
        )


class Kubernetes:
    """The commands, with a namespace, a service account, a volume and a Redis of their own."""

    def __init__(self, folder):
        self.folder = folder
        self.namespace = f"test-{secrets.token_hex(4)}"
        (folder / "redis").mkdir()
        self.redis = RedisServer(folder / "redis", host=_address_here(), password=secrets.token_hex(8))
        self._environment = os.environ | {"CLUSTER_SERVING_HOME": str(folder / "state"), "COLUMNS": "200"}
        call("kubectl", "create", "namespace", self.namespace)
        self.kubectl("create", "serviceaccount", "flink")
        account = f"--serviceaccount={self.namespace}:flink"
        self.kubectl("create", "rolebinding", "flink-edit", "--clusterrole=edit", account)
        self._make_volume()

    def close(self):
        call("kubectl", "delete", "namespace", self.namespace, "--wait=false")
        call("kubectl", "delete", "persistentvolume", self.namespace, "--ignore-not-found", "--wait=false")
        self.redis.stop()

    def kubectl(self, *arguments, **options):
        return call("kubectl", "--namespace", self.namespace, *arguments, **options)

    def configure(self, model, flink=None, **settings):
        """Write the configuration of the job `digits`."""
        target = {
            "target": "kubernetes-application",
            "image": IMAGE,
            "namespace": self.namespace,
            "serviceAccount": "flink",
            "options": {},
            **(flink or {}),
        }
        # The nodes of a test cluster are small, and shared.
        target["options"] = {"kubernetes.taskmanager.cpu.amount": 0.2} | target["options"]
        given = {"modelPath": str(model), "jobName": "digits", "redisUrl": self.redis.url, "startTimeout": 300}
        (self.folder / "config.yaml").write_text(yaml.safe_dump(given | {"flink": target} | settings))

    def run(self, command, *arguments):
        return run(command, *arguments, cwd=self.folder, environment=self._environment, timeout=SLOW)

    def queue(self, name="digits"):
        return InputQueue(url=self.redis.url, name=name)

    def pods(self, component):
        """The names of the pods of a component that nobody has deleted, by the time of their start."""
        listed = json.loads(self.kubectl("get", "pods", "-l", f"{LABEL}={OURS},component={component}", "-o", "json"))
        kept = [pod["metadata"] for pod in listed["items"] if "deletionTimestamp" not in pod["metadata"]]
        return [pod["name"] for pod in sorted(kept, key=lambda pod: pod["creationTimestamp"])]

    def replaced(self, component):
        """Delete a pod, and wait until another one is in its place."""
        before = set(self.pods(component))
        self.kubectl("delete", "pod", *before, "--wait=false")
        wait_until(lambda: set(self.pods(component)) - before, SLOW)

    @contextmanager
    def session(self, name):
        """A session cluster of Flink, as its users start one."""
        home = FlinkHome(self.folder / name)
        home.prepare(
            SETTINGS
            | {
                "execution.shutdown-on-application-finish": None,
                "kubernetes.cluster-id": name,
                "kubernetes.namespace": self.namespace,
                "kubernetes.container.image.ref": IMAGE,
                "kubernetes.service-account": "flink",
                "kubernetes.jobmanager.cpu.amount": 0.2,
                "kubernetes.jobmanager.cpu.limit-factor": 10.0,
                "kubernetes.taskmanager.cpu.amount": 0.2,
                "kubernetes.taskmanager.cpu.limit-factor": 10.0,
                "taskmanager.memory.task.off-heap.size": "2g",
            }
        )
        call(home.path / "bin" / "kubernetes-session.sh", cwd=home.work, env=home.environment())
        try:
            self.kubectl("wait", "--for=condition=Available", f"deployment/{name}", f"--timeout={SLOW}s")
            yield
        finally:
            self.kubectl("delete", "deployment", name, "--cascade=foreground")

    def leftovers(self):
        """The names of all that jobs have, whatever labels it bears."""
        kinds = "deployments,pods,services,secrets,configmaps"
        return [name for name in self.kubectl("get", kinds, "-o", "name").split() if _NONE not in name]

    def _make_volume(self):
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}
        if "(default)" not in call("kubectl", "get", "storageclasses"):
            # Of a cluster with one node, which is this machine.
            folder = self.folder / "volume"
            folder.mkdir()
            folder.chmod(0o777)
            volume = {
                "capacity": {"storage": "5Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "",
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": self.namespace, "name": "volume"},
                "hostPath": {"path": str(folder), "type": "Directory"},
            }
            self._apply("PersistentVolume", self.namespace, volume)
            spec["storageClassName"] = ""
        self._apply("PersistentVolumeClaim", "volume", spec)

    def _apply(self, kind, name, spec):
        resource = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.kubectl("apply", "-f", "-", input=json.dumps(resource))


def _address_here():
    """The address of this machine that pods can reach: that by which it reaches the cluster, or one that is given."""
    if given := os.environ.get("CLUSTER_SERVING_TEST_HOST"):
        return given
    server = call("kubectl", "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((urlsplit(server).hostname, 9))
        address = probe.getsockname()[0]
    if address.startswith("127."):
        pytest.skip("set CLUSTER_SERVING_TEST_HOST to an address of this machine that pods can reach")
    return address
