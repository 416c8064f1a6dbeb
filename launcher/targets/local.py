"""The target `local`: a Flink on this machine, which is started if needed."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.command_log import say
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import flink_gateway
from cluster_serving.launcher.services.flink_cluster import FlinkCluster
from cluster_serving.launcher.services.process import is_listening
from cluster_serving.launcher.shipping.bundle import Bundle
from cluster_serving.launcher.targets import submission
from cluster_serving.launcher.targets.base import Target


class Local(FlinkCluster, Target):
    """A Flink on this machine; jobs use the packages and the files of this machine as they are."""

    @classmethod
    def ships(cls, config: Config) -> str:
        """Return that nothing is shipped."""
        return "nothing"

    @property
    def is_here(self) -> bool:
        """True if the Flink was started here, or will be; one that runs in containers may be elsewhere."""
        return self.is_ours or (self.address.is_local and not is_listening(self.address))

    def check(self) -> None:
        """Check that the cluster can be used, or started; one of others needs what ours have."""
        super().check()
        if self.is_ours or not is_listening(self.address):
            return
        with self.flink() as flink:
            if not flink.has_pyflink():
                raise LaunchError(
                    f"Flink at {self.address} was not started by these commands, and its lib/ lacks "
                    "flink-python-*.jar: set flink.target: remote, so that jobs bring Python along; or set "
                    "flinkRestUrl to a free port of this machine, where cluster-serving-start starts a Flink"
                )

    def submit(self, options: JobOptions) -> str:
        """Submit a job, whose model and packages are found where they are."""
        say(f"Submitting job {options.redis.job}")
        if self.is_ours and flink_gateway.exists(self.home):
            return submission.submit_here(self.home, self.address, options, self.config.start_timeout)
        return self.run(
            submission.MAIN, options.submission, options.to_json(), self.brought(options), options.redis.job
        )

    def brought(self, options: JobOptions) -> Bundle:
        """Return that a job brings nothing along."""
        return Bundle(options)

    def run(self, main: Sequence[str], submitted: str, options: str, loaded: Bundle, name: str) -> str:
        """Submit a main program with its options as JSON, and return the id of its job; `name` is that of the log."""
        command = [*submission.on_this_machine(self.home, self.address), *main]
        log = self.home.log_of(name)
        return submission.submit(self.home, command, submitted, options, log, self.config.start_timeout)
