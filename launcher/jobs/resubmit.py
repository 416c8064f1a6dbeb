"""Submits the jobs of a cluster again after its JobManager died: without high availability it has forgotten them.

Usage: python -m cluster_serving.launcher.jobs.resubmit PORT

The keeper of the JobManager runs this after it has started the JobManager again. Requests are not concerned: they wait
in Redis.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path

from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs.flink_rest import FlinkRest
from cluster_serving.launcher.jobs.submission import submit
from cluster_serving.launcher.services import flink_cluster
from cluster_serving.launcher.services.flink_home import FlinkHome
from cluster_serving.launcher.services.process import wait_until
from cluster_serving.settings.addresses import Address

PATIENCE = 120.0
"""Seconds that the cluster may take to have slots for a job."""


def remember(home: Path, options: JobOptions) -> None:
    """Keep what a job was started with, in the cluster's private folder."""
    record = _folder(home) / f"{options.name}.json"
    record.parent.mkdir(mode=0o700, exist_ok=True)
    unfinished = record.with_suffix(".new")
    # Made private before it is filled: the address of Redis may hold a password.
    unfinished.touch(0o600)
    unfinished.write_text(options.to_json(), "utf8")
    unfinished.replace(record)


def forget(home: Path, job: str) -> None:
    """Do not submit a job again: it was stopped."""
    (_folder(home) / f"{job}.json").unlink(missing_ok=True)


def resubmit(address: Address) -> tuple[list[str], dict[str, str]]:
    """Submit all remembered jobs that the JobManager does not know.

    Args:
        address: REST endpoint of the cluster that was started here.

    Returns:
        Names of the submitted jobs, and of those that could not be, with the cause.
    """
    home = FlinkHome(flink_cluster.folder(address))
    submitted, failed = [], {}
    with flink_cluster.submitting(address), FlinkRest(f"http://{address}") as rest:
        for record in sorted(_folder(home.path).glob("*.json")):
            try:
                options = JobOptions.from_json(record.read_text("utf8"))
                if _resubmit(home, rest, address, options, record):
                    submitted.append(options.name)
            except Exception as error:
                # Whatever it is, the other jobs come back. One that was stopped meanwhile is no failure.
                if record.exists():
                    failed[record.stem] = f"{type(error).__name__}: {error}"
    return submitted, failed


def _resubmit(home: FlinkHome, rest: FlinkRest, address: Address, options: JobOptions, record: Path) -> bool:
    def is_needless() -> bool:
        return not record.exists() or bool(rest.jobs(options.name))

    def is_settled() -> bool:
        try:
            overview = rest.overview()
            return overview is not None and (is_needless() or overview.free >= options.parallelism)
        except LaunchError:
            # The new JobManager does not answer every question from the start.
            return False

    if not wait_until(is_settled, PATIENCE):
        raise LaunchError(f"no {options.parallelism} free slots for job {options.name} within {PATIENCE:.0f} s")
    if is_needless():
        return False
    job_id = submit(home, address, options, PATIENCE)
    if not record.exists():
        rest.cancel(job_id)
        return False
    return True


def _folder(home: Path) -> Path:
    return home / flink_cluster.JOBS


def main() -> None:
    """Try until all of them run or are stopped; what happens is in the JobManager's log."""
    address = Address("localhost", int(sys.argv[1]))
    # What keeps a job from being submitted may take long: its Redis reads its file, or the disk is full.
    for pause in chain((5, 10, 20, 40), repeat(60)):
        submitted, failed = resubmit(address)
        with suppress(OSError):
            print(json.dumps({"resubmitted": submitted, "failed": failed}), flush=True)
        if not failed:
            return
        time.sleep(pause)


if __name__ == "__main__":
    main()
