"""A Flink session cluster that others operate, and that needs nothing of ours."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.command_log import say, warn
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services.flink_cluster import FlinkCluster
from cluster_serving.launcher.shipping import bundle
from cluster_serving.launcher.shipping.bundle import Bundle
from cluster_serving.launcher.targets import submission
from cluster_serving.launcher.targets.base import Target

_LARGEST = (1 << 31) - 1
"""Bytes of the largest file that Flink's blob server takes."""


class Session(FlinkCluster, Target):
    """The cluster at `flinkRestUrl`, to which each job brings interpreter, packages and model.

    Flink keeps what a job brings for as long as the job runs, and gives it to every TaskManager that needs it: also
    after a failure, and without this machine.
    """

    def check(self) -> None:
        """Check that the cluster answers; warn if it takes long to notice the death of a TaskManager."""
        self.overview()
        with self.flink() as flink:
            if not flink.is_set("heartbeat.interval"):
                warn(
                    f"by its default heartbeats, Flink at {self.address} notices a dead TaskManager after 20 to 50 s, "
                    "in which requests wait; set heartbeat.interval: 1 s and heartbeat.timeout: 30 s there"
                )

    def fitted(self, config: Config) -> Config:
        """Return the configuration with an execution mode in which a job survives its first restart.

        In thread mode a TaskManager loads Python once. A second job, or the same one after a restart, would use the
        packages of the first, which Flink has removed by then; without the jar in `lib/` it would not even load.
        """
        if config.execution_mode == "process" or (config.ships == "nothing" and self._has_jar()):
            return config
        say(
            "executionMode is process: thread needs packages on the machines (flink.ship: nothing) and "
            "flink-python-*.jar in Flink's lib/"
        )
        return config.model_copy(update={"execution_mode": "process"})

    def submit(self, options: JobOptions) -> str:
        """Ship what the job needs, and submit the job."""
        loaded = self.brought(options)
        size = f", with {loaded.size / 1e6:.0f} MB" if loaded.archives else ""
        say(f"Submitting job {options.redis.job}{size}")
        return self.run(submission.MAIN, options.submission, loaded.options.to_json(), loaded, options.redis.job)

    def brought(self, options: JobOptions) -> Bundle:
        """Return what a job brings along."""
        loaded = bundle.load(self.config.ships, options)
        _check_sizes(loaded)
        return loaded

    def run(self, main: Sequence[str], submitted: str, options: str, loaded: Bundle, name: str) -> str:
        """Submit a main program with its options as JSON, and return the id of its job; `name` is that of the log."""
        command = [*submission.to_cluster(self.home, self.address), *loaded.arguments(), *main]
        # A cluster that lacks PyFlink's classes gets them from the program.
        command += [] if self._has_jar() else ["--with-jar"]
        log = self.home.log_of(name)
        return submission.submit(self.home, command, submitted, options, log, self.config.start_timeout)

    def _has_jar(self) -> bool:
        """Return True if the machines of the cluster have the classes of PyFlink."""
        with self.flink() as flink:
            return flink.has_pyflink()


def _check_sizes(loaded: Bundle) -> None:
    for archive in loaded.archives:
        if (size := archive.stat().st_size) > _LARGEST:
            raise LaunchError(
                f"{archive.name} has {size / 1e9:.1f} GB, and a Flink session cluster takes files of 2 GB at most from "
                "a job; let the TaskManagers fetch the model (modelPath: s3://..., hdfs://... or https://...), or put "
                "it on the machines under one path (flink.ship: nothing)"
            )
