"""Jobs of the Flink of a command that use another Redis than its own: those of others who share the Flink."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from redis.exceptions import RedisError

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.launcher.services.flink_rest import Job
from cluster_serving.launcher.targets.records import JobRecords


def are_foreign(store: JobStore, records: JobRecords, jobs: Sequence[Job]) -> bool:
    """Return True if Flink has jobs of the name of a store's job, and neither its Redis nor this machine knows one.

    Slots of a job whose Redis has lost its data report again, and so make the job known.
    """
    known = {options.submission for options in records.known()}
    with suppress(RedisError, OSError):
        known |= {generation.submission for generation in store.generations().all.values()}
        known |= {report.submission for report in store.slots()}
    return bool(jobs) and known.isdisjoint(job.submission for job in jobs)


def refuse(store: JobStore, records: JobRecords, jobs: Sequence[Job], done: str) -> None:
    """Refuse to do something to a job, named in words, if Flink has `jobs` of its name that are foreign.

    Raises:
        LaunchError: If they are.
    """
    if are_foreign(store, records, jobs):
        raise LaunchError(
            f"job {store.job} was not {done}: Flink has a job of that name that neither the configured Redis nor this "
            "machine knows; use the configuration that started it (-c), or another jobName, or cancel it in Flink's UI"
        )
