"""Entry point of the job, for `flink run -pym cluster_serving.job.main` and for the launcher."""

import argparse
import json
import os
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from cluster_serving.job.models import check as check_model
from cluster_serving.job.models import requirements as engine_requirements
from cluster_serving.job.models.versions import number_of, version_folders
from cluster_serving.job.options import JobOptions

__all__ = ["SUBMITTED", "check_model", "engine_requirements", "main", "number_of", "version_folders"]

SUBMITTED = "submitted"
"""Field of a line of output: the submission that Flink has accepted; the field `id` has Flink's id of the job."""


def main() -> None:
    """Submit the jobs of options files; a job that cannot be submitted keeps no other from it."""
    parser = argparse.ArgumentParser(prog="cluster_serving.job.main", description=main.__doc__)
    parser.add_argument("--options-file", type=Path, required=True, action="append", help="JSON of JobOptions")
    parser.add_argument("--gateway", action="store_true", help="read the port of PyFlink's JVM from standard input")
    parser.add_argument("--with-jar", action="store_true", help="ship flink-python's jar, which the cluster lacks")
    given = parser.parse_args()
    jobs = [JobOptions.from_json(file.read_text("utf8")) for file in given.options_file]

    # Imported here, so that the launcher can check a model without loading Flink.
    from cluster_serving.job.submission import leave_out_beam

    leave_out_beam()
    from pyflink.datastream import StreamExecutionEnvironment

    from cluster_serving.job.topology import build

    if given.gateway:
        os.environ["PYFLINK_GATEWAY_PORT"] = sys.stdin.readline().strip()
    failed = False
    with ThreadPoolExecutor(len(jobs)) as pool:
        prepared = {pool.submit(_prepare, options): options for options in jobs}
        for future in as_completed(prepared):
            options = prepared[future]
            try:
                future.result()
                env = StreamExecutionEnvironment.get_execution_environment()
                build(env, options, with_jar=given.with_jar)
                job = env.execute_async(options.flink_name)
                print(json.dumps({SUBMITTED: options.submission, "id": str(job.get_job_id())}), flush=True)
            except Exception:
                failed = True
                traceback.print_exc()
    sys.exit(failed)


def _prepare(options: JobOptions) -> None:
    """Write to Redis what the job and its clients need."""
    from cluster_serving.connectors.generation import GenerationView
    from cluster_serving.connectors.redis import Backoff, connect
    from cluster_serving.connectors.reporting import publish_limits
    from cluster_serving.connectors.stream import create_groups

    with connect(options.redis) as client:
        # A Redis that has just started may still be loading its data.
        backoff = Backoff(f"job {options.redis.job}")
        backoff.persist(lambda: create_groups(client, options.redis.queue.job))
        view = GenerationView(client, options.redis)
        backoff.persist(view.look)
        # The limits are those of the generation that serves.
        if view.reads and not options.redis.shadow:
            backoff.persist(lambda: publish_limits(client, options.redis))


if __name__ == "__main__":
    main()
