"""Target, Flink and Redis of a job, for a command that starts or changes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.jobs import elsewhere, foreign_jobs, foreign_keys, lock, model_copy
from cluster_serving.launcher.jobs.store import JobStore, opened
from cluster_serving.launcher.services import redis_server
from cluster_serving.launcher.services.flink_rest import Flink
from cluster_serving.launcher.targets import Target, target_of
from cluster_serving.protocol.redis.connection import translated


@dataclass(frozen=True, slots=True)
class Services:
    """Target, Flink and Redis of a job."""

    target: Target
    flink: Flink
    store: JobStore

    def options_now(self) -> JobOptions | None:
        """Return the options with which the job serves; None if this machine does not know them."""
        serving = self.store.generations().serving
        return self.target.records.recall(self.store.job, serving.submission) if serving else None

    def tidy(self) -> None:
        """Give back what no generation uses any more: copies of models, and idle TaskManagers."""
        model_copy.tidy(self.target.home.path, self.target.records.known())
        self.target.reclaim()


@contextmanager
def services(config: Config, done: str) -> Iterator[Services]:
    """Provide Redis and Flink, and keep other commands from starting, changing or stopping the job.

    Raises:
        LaunchError: If the job runs in another Flink, so that none is started for it, or if that of its name in this
            one has another Redis; `done` says in words what was not done to the job.
    """
    target = target_of(config)
    with ExitStack() as stack:
        stack.enter_context(target.submitting())
        target.check()
        redis_server.ensure(config)
        stack.enter_context(lock.for_job(config, config.job_name))
        store = stack.enter_context(opened(config))
        foreign_keys.refuse(store.client, store.job)
        flink = stack.enter_context(target.flink())
        with translated(store.client):
            if config.target == "local" and not target.is_up():
                elsewhere.refuse(store, flink, done)
            else:
                foreign_jobs.refuse(store, target.records, flink.jobs(store.job), done)
        target.ensure()
        # What is left of errors of Redis here is for a person.
        with translated(store.client):
            yield Services(target, flink, store)
