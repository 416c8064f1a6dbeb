"""The product itself: its commands, with a Redis and a Flink that they start."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import httpx
import yaml

from cluster_serving.client import InputQueue, OutputQueue
from cluster_serving.launcher.services import state
from cluster_serving.protocol.keys import DEFAULT_JOB
from tests.support.redis_server import free_port

BIN = Path(sys.executable).parent


def run(command, *arguments, cwd, environment, stdin=subprocess.DEVNULL, timeout=150):
    """Run one of the commands in a folder; returns the finished command."""
    return subprocess.run(
        [str(BIN / command), *arguments],
        cwd=cwd,
        env=environment,
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


class Cluster:
    """The commands, run as a user runs them, in a folder per job.

    Redis and Flink have ports of their own; the first start brings them up. Models are fetched into `cache`. Jobs have
    one copy of one thread, so that no start measures; a key that is None is left out.
    """

    def __init__(self, folder):
        self.folder = folder
        self.redis_port = redis_port = free_port()
        self.flink_port = flink_port = free_port()
        self.rest = f"http://127.0.0.1:{flink_port}"
        self._addresses = {
            "redisUrl": f"127.0.0.1:{redis_port}",
            "flinkRestUrl": f"127.0.0.1:{flink_port}",
        }
        self._layout = {"modelParallelism": 1, "threadPerModel": 1, "maxBatchSize": 32}
        self.cache = folder / "cache"
        folders = {"CLUSTER_SERVING_HOME": str(folder / "state"), "CLUSTER_SERVING_CACHE": str(self.cache)}
        self._environment = os.environ | folders | {"COLUMNS": "200"}

    @property
    def state(self):
        """Where the launcher keeps what it started."""
        with mock.patch.dict(os.environ, self._environment):
            return state.root()

    def run(self, command, *arguments, cwd=None, stdin=subprocess.DEVNULL):
        return run(command, *arguments, cwd=cwd or self.folder, environment=self._environment, stdin=stdin)

    @contextmanager
    def variables(self, **variables):
        """Run commands with further environment variables."""
        before = self._environment
        self._environment = before | variables
        try:
            yield
        finally:
            self._environment = before

    def configure(self, **settings):
        """Write the configuration of a job; returns its folder."""
        folder = self.folder / settings.get("jobName", DEFAULT_JOB)
        folder.mkdir(exist_ok=True)
        config = {key: str(value) if isinstance(value, Path) else value for key, value in settings.items()}
        (folder / "config.yaml").write_text(yaml.safe_dump(self._addresses | self._layout | config))
        return folder

    def config(self, **settings):
        """Write the configuration of a job; returns its file."""
        return self.configure(**settings) / "config.yaml"

    def starting(self, **settings):
        """The command that starts a job, while it runs."""
        return self.running("cluster-serving-start", self.configure(**settings))

    @contextmanager
    def running(self, command, folder, *arguments):
        """A command while it runs."""
        options = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
            # Of a shell's background processes, as tests may be, Ctrl-C is ignored.
            "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        }
        with subprocess.Popen(
            [BIN / command, *arguments], cwd=folder, env=self._environment, text=True, **options
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def start(self, **settings):
        """Start a job; returns the finished command."""
        return self.run("cluster-serving-start", cwd=self.configure(**settings))

    def restart(self, name):
        return self.run("cluster-serving-restart", cwd=self.folder / name)

    def stop(self, name):
        return self.run("cluster-serving-stop", name, cwd=self.folder / name)

    def shutdown(self):
        """Stop all that was started; returns the finished command."""
        # Where no config.yaml is: it would name one Redis and one Flink.
        return self.run("cluster-serving-shutdown", "--yes", cwd=self.folder.parent)

    def queues(self, name):
        return InputQueue(port=self.redis_port, name=name), OutputQueue(port=self.redis_port, name=name)

    def state_of(self, name):
        """State of the newest job of that name; None if Flink does not answer or knows none."""
        try:
            return self.job(name)["state"]
        except (httpx.TransportError, ValueError):
            return None

    def running_jobs(self, name):
        """Jobs of that name that run, as Flink's REST API describes them."""
        listed = httpx.get(f"{self.rest}/jobs/overview").json()["jobs"]
        return [job for job in listed if job["name"].startswith(f"{name} (") and job["state"] == "RUNNING"]

    def job(self, name):
        """Newest job of that name, as Flink's REST API describes it."""
        listed = httpx.get(f"{self.rest}/jobs/overview").json()["jobs"]
        jobs = [job for job in listed if job["name"].startswith(f"{name} (generation ")]
        newest = max(jobs, key=lambda job: job["start-time"])
        return httpx.get(f"{self.rest}/jobs/{newest['jid']}").json()
