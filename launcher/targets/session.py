"""A Flink session cluster that others operate, and that needs nothing of ours."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.services import flink_cluster
from cluster_serving.launcher.services.flink_cluster import FlinkCluster
from cluster_serving.launcher.services.flink_rest import FlinkRest
from cluster_serving.launcher.services.process import is_listening
from cluster_serving.launcher.shipping import cargo
from cluster_serving.launcher.targets import submission
from cluster_serving.launcher.targets.base import Say, Target


class Session(Target):
    """The cluster at `flinkRestUrl`, to which each job brings interpreter, packages and model.

    Flink keeps what a job brings for as long as the job runs, and gives it to every TaskManager that needs it: also
    after a failure, and without this machine.
    """

    def __init__(self, config: Config, say: Say = lambda _: None) -> None:
        super().__init__(config, say)
        self._cluster = FlinkCluster(config, say)
        self.home = self._cluster.home

    def flink(self) -> FlinkRest:
        """Return a client for the jobs of the cluster."""
        return FlinkRest(self.config.flink_rest_url)

    def submitting(self) -> AbstractContextManager[None]:
        """Let one command at a time submit jobs to the cluster: two could count on the same slots."""
        return flink_cluster.submitting(self.config.flink_address, self.say)

    def check(self) -> None:
        """Check that the cluster answers."""
        self._cluster.check()

    def is_up(self) -> bool:
        """Return True if a usable Flink listens at `flinkRestUrl`; False if nothing does."""
        if not is_listening(self.config.flink_address):
            return False
        self._cluster.check()
        return True

    def ensure(self) -> None:
        """Use the cluster as it is."""
        self._cluster.ensure()

    def slots(self, needed: int) -> AbstractContextManager[None]:
        """Check that the cluster has free task slots."""
        return self._cluster.slots(needed)

    def submit(self, options: JobOptions) -> str:
        """Ship what the job needs, and submit the job."""
        has_jar = self._has_jar()
        if not has_jar and options.execution_mode == "thread":
            # Thread mode loads a native library, which a JVM takes from one class loader only. Without the jar in lib/,
            # each job has a class loader of its own, and each restart of a job another.
            self.say(
                "The job runs with executionMode: process, as Flink's lib/ has no flink-python-*.jar; with it and "
                "flink.ship: nothing, thread mode is possible"
            )
            options = replace(options, execution_mode="process")
        loaded = cargo.load(self.config.ships, options, self.say)
        size = f", with {loaded.size / 1e6:.0f} MB" if loaded.archives else ""
        self.say(f"Submitting job {options.redis.job}{size}")
        return submission.submit(
            self.home,
            submission.to_cluster(self.home, self.config.flink_address) + loaded.arguments(),
            loaded.options,
            self.log_of(options.redis.job),
            self.config.start_timeout,
            with_jar=not has_jar,
        )

    def _has_jar(self) -> bool:
        """Return True if the machines of the cluster have the classes of PyFlink."""
        with self.flink() as flink:
            return "flink-python" in flink.classpath()
