"""What the commands need of a Flink, wherever it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar

from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services.flink_home import FlinkHome
from cluster_serving.launcher.services.flink_rest import Flink
from cluster_serving.launcher.targets.records import JobRecords
from cluster_serving.settings.model import Settings


class Target(ABC):
    """A place where jobs run: a Flink cluster, or a manager that starts one for each job.

    A distribution adds a target by an entry point of the group `cluster_serving.targets`, whose name is the value of
    `flink.target`.

    Attributes:
        keys: Keys of config.yaml that the target adds, whose names begin with `flink.`; None for none.
        home: Configuration, work folder and logs of the client that submits.

    Raises:
        LaunchError: From every method, if the target cannot be used.
    """

    keys: ClassVar[type[Settings] | None] = None
    home: FlinkHome

    def __init__(self, config: Config) -> None:
        self.config = config

    @classmethod
    def ships(cls, config: Config) -> str:
        """Return what a job brings along if `flink.ship` is empty."""
        return "environment"

    @property
    def is_here(self) -> bool:
        """True if the processes that compute run on this machine."""
        return False

    @abstractmethod
    def flink(self) -> AbstractContextManager[Flink]:
        """Return a client for the jobs of the target."""

    @abstractmethod
    def check(self) -> None:
        """Check, before anything is started, that the target can be used."""

    @abstractmethod
    def is_up(self) -> bool:
        """Return True if the target answers; False if it would have to be started."""

    @abstractmethod
    def ensure(self) -> None:
        """Make the target ready for a submission."""

    def fitted(self, config: Config) -> Config:
        """Return the configuration as it can work on the target; a change is told."""
        return config

    @abstractmethod
    def submit(self, options: JobOptions) -> str:
        """Ship what the job needs, submit the job, and return its id.

        `config.start_timeout` limits the time for it. The job may still fail: its slots report when they are ready.
        """

    def submitting(self) -> AbstractContextManager[None]:
        """Let one command of this machine at a time submit jobs to the target."""
        return nullcontext()

    def slots(self, needed: int) -> AbstractContextManager[None]:
        """Provide task slots for a job; if the body fails, give back what was started for it."""
        return nullcontext()

    def reclaim(self) -> None:  # noqa: B027 - does nothing where others start the machines
        """Give back what was started for jobs that have ended."""

    @property
    def records(self) -> JobRecords:
        """The options of the jobs that this machine has started."""
        return JobRecords(self.home.path)


def check_redis(config: Config, machines: str) -> None:
    """Check that other machines, named in words, can reach Redis.

    Raises:
        LaunchError: If `redisUrl` is an address of this machine alone.
    """
    if config.redis_address.is_local:
        raise LaunchError(
            f"redisUrl is {config.redis_shown}, which {machines} cannot reach; set it to an address of this machine in "
            "their network, or to a Redis elsewhere"
        )
