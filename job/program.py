"""The program that submits jobs to Flink. It imports little: all that is needed where a job runs is made there.

Usage: python -m cluster_serving.job.program [--gateway] [--with-jar] --options-file FILE...
"""

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from cluster_serving.job.options import JobOptions

__all__ = ["SUBMITTED", "main"]

SUBMITTED = "submitted"
"""Field of a line of output: the submission that Flink has accepted; the field `id` has Flink's id of the job."""


def main() -> None:
    """Submit the jobs of options files; a job that cannot be submitted keeps no other from it."""
    given = _arguments()
    jobs = [JobOptions.from_json(file.read_text("utf8")) for file in given.options_file]
    # Before the port is read: the JVM may still be starting.
    submit = _submission(given.with_jar)
    prepare = _nothing if given.gateway else _preparation()
    if given.gateway:
        os.environ["PYFLINK_GATEWAY_PORT"] = sys.stdin.readline().strip()
    failed = False
    with ThreadPoolExecutor(len(jobs)) as pool:
        prepared = {pool.submit(prepare, options): options for options in jobs}
        for future in as_completed(prepared):
            try:
                future.result()
                submit(prepared[future])
            except Exception:
                failed = True
                traceback.print_exc()
    sys.exit(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="cluster_serving.job.program", description=main.__doc__)
    parser.add_argument("--options-file", type=Path, required=True, action="append", help="JSON of JobOptions")
    parser.add_argument(
        "--gateway", action="store_true", help="read the port of a JVM from standard input; Redis is prepared"
    )
    parser.add_argument("--with-jar", action="store_true", help="ship flink-python's jar, which the cluster lacks")
    return parser.parse_args()


def _submission(with_jar: bool) -> Callable[[JobOptions], None]:
    """Import PyFlink; return a function that submits a job, and prints the id that Flink has given it."""
    from cluster_serving.job.submission import leave_out_beam

    leave_out_beam()
    from pyflink.datastream import StreamExecutionEnvironment

    from cluster_serving.job.topology import build

    def submit(options: JobOptions) -> None:
        env = StreamExecutionEnvironment.get_execution_environment()
        build(env, options, with_jar)
        job = env.execute_async(options.flink_name)
        print(json.dumps({SUBMITTED: options.submission, "id": str(job.get_job_id())}), flush=True)

    return submit


def _nothing(options: JobOptions) -> None:
    """Leave Redis as it is."""


def _preparation() -> Callable[[JobOptions], None]:
    from cluster_serving.job.preparation import prepare

    return prepare


if __name__ == "__main__":
    main()
