"""Resubmission of a cluster's jobs after the death of its JobManager, which has no record of them.

Usage: python -m cluster_serving.launcher.targets.resubmit PORT

The supervisor of the JobManager runs this module after each start of the JobManager but the first. Requests wait in
Redis meanwhile.
"""

import json
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
from cluster_serving.launcher.targets.records import JobRecords
from cluster_serving.settings.addresses import Address

TIMEOUT_S = 120.0
"""Seconds that the cluster may take to accept the jobs."""


def resubmit(address: Address) -> tuple[list[str], dict[str, str]]:
    """Submit all recorded generations that the JobManager of a cluster that was started here does not know.

    The JobManager may still be starting: `flink run` waits for it, and the jobs wait for slots.

    Return the names of the submitted generations, `<job>@<number>`, and the causes of failures by these names.
    """
    home = FlinkHome(flink_cluster.folder(address))
    records = JobRecords(home.path)
    jobs: dict[Path, JobOptions] = {}
    submitted: list[str] = []
    failed: dict[str, str] = {}
    with flink_cluster.submitting(address), FlinkRest(f"http://{address}") as rest:
        for record in records.all():
            try:
                jobs[record] = JobOptions.from_json(record.read_text("utf8"))
            except Exception as error:
                failed[record.stem] = f"{type(error).__name__}: {error}"
        try:
            if rest.overview() is not None:
                known = {job.submission for job in rest.jobs()}
                jobs = {record: options for record, options in jobs.items() if options.submission not in known}
            log = home.logs / "resubmission.log"
            command = [*submission.on_this_machine(home, address), *submission.MAIN]
            texts = [options.to_json() for options in jobs.values()]
            ids = submission.submit_all(home, command, texts, log, TIMEOUT_S)[0] if jobs else {}
            for record, options in jobs.items():
                if (job_id := ids.get(options.submission)) is None:
                    failed[record.stem] = f"the job was not accepted (output: {log})"
                elif record.exists():
                    submitted.append(record.stem)
                else:
                    rest.cancel(job_id)
        except Exception as error:
            failed |= dict.fromkeys((record.stem for record in jobs), f"{type(error).__name__}: {error}")
    # A job that was stopped meanwhile is no failure.
    kept = {record.stem for record in records.all()}
    return submitted, {name: error for name, error in failed.items() if name in kept}


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
