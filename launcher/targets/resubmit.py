"""Resubmission of a cluster's jobs after the death of its JobManager, which has no record of them.

Usage: python -m cluster_serving.launcher.targets.resubmit PORT

The supervisor of the JobManager runs this module after each start of the JobManager but the first. Requests wait in
Redis meanwhile.
"""

import json
import shutil
import sys
import time
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path

from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.services import flink_cluster
from cluster_serving.launcher.services.flink_home import FlinkHome
from cluster_serving.launcher.services.flink_rest import FlinkRest
from cluster_serving.launcher.targets import submission
from cluster_serving.settings.addresses import Address

PATIENCE = 120.0
"""Seconds that the cluster may take to accept the jobs."""


def remember(home: Path, options: JobOptions) -> None:
    """Keep the options of a job in the cluster's private folder."""
    record = _folder(home) / f"{options.redis.job}.json"
    record.parent.mkdir(mode=0o700, exist_ok=True)
    unfinished = record.with_suffix(".new")
    # Private before it is filled: the address of Redis may hold a password.
    unfinished.touch(0o600)
    unfinished.write_text(options.to_json(), "utf8")
    unfinished.replace(record)


def recall(home: Path, job: str) -> JobOptions | None:
    """Return the options of a job that runs; None if they are not known, or are those of another version."""
    try:
        return JobOptions.from_json((_folder(home) / f"{job}.json").read_text("utf8"))
    except (OSError, ValueError):
        return None


def forget(home: Path, job: str) -> None:
    """Remove the options of a job that was stopped, so that it is not submitted again."""
    (_folder(home) / f"{job}.json").unlink(missing_ok=True)


def forget_all(home: Path) -> None:
    """Remove the options of all jobs of a cluster, whose jobs end with it."""
    shutil.rmtree(_folder(home), ignore_errors=True)


def resubmit(address: Address) -> tuple[list[str], dict[str, str]]:
    """Submit all remembered jobs that the JobManager of a cluster that was started here does not know.

    The JobManager may still be starting: `flink run` waits for it, and the jobs wait for slots.

    Return the names of the submitted jobs, and the causes of failures by the names of jobs.
    """
    home = FlinkHome(flink_cluster.folder(address))
    jobs: dict[Path, JobOptions] = {}
    submitted: list[str] = []
    failed: dict[str, str] = {}
    with flink_cluster.submitting(address), FlinkRest(f"http://{address}") as rest:
        for record in sorted(_folder(home.path).glob("*.json")):
            try:
                jobs[record] = JobOptions.from_json(record.read_text("utf8"))
            except Exception as error:
                failed[record.stem] = f"{type(error).__name__}: {error}"
        try:
            if rest.overview() is not None:
                jobs = {record: options for record, options in jobs.items() if not rest.jobs(options.redis.job)}
            log = home.logs / "resubmission.log"
            arguments = submission.on_this_machine(home, address)
            ids = submission.submit_all(home, arguments, list(jobs.values()), log, PATIENCE)[0] if jobs else {}
            for record, options in jobs.items():
                if (job_id := ids.get(options.redis.job)) is None:
                    failed[record.stem] = f"the job was not accepted (output: {log})"
                elif record.exists():
                    submitted.append(options.redis.job)
                else:
                    rest.cancel(job_id)
        except Exception as error:
            failed |= dict.fromkeys((record.stem for record in jobs), f"{type(error).__name__}: {error}")
    # A job that was stopped meanwhile is no failure.
    return submitted, {name: error for name, error in failed.items() if (_folder(home.path) / f"{name}.json").exists()}


def _folder(home: Path) -> Path:
    return home / flink_cluster.JOBS


def main() -> None:
    """Try until all jobs run or are stopped; the JobManager's log has the results."""
    address = Address("localhost", int(sys.argv[1]))
    # The obstacle may last: Redis reads its file, or the disk is full.
    for pause in chain((5, 10, 20, 40), repeat(60)):
        submitted, failed = resubmit(address)
        with suppress(OSError):
            print(json.dumps({"resubmitted": submitted, "failed": failed}), flush=True)
        if not failed:
            return
        time.sleep(pause)


if __name__ == "__main__":
    main()
