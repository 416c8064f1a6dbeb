"""Entry point of the job, for `flink run -pym cluster_serving.job.main` and for the launcher."""

import argparse
from pathlib import Path

from cluster_serving.job.models import check as check_model
from cluster_serving.job.options import JobOptions

__all__ = ["check_model", "main"]


def main() -> None:
    """Submit the job of an options file."""
    parser = argparse.ArgumentParser(prog="cluster_serving.job.main", description=main.__doc__)
    parser.add_argument("--options-file", type=Path, required=True, help="JSON of JobOptions")
    options = JobOptions.from_json(parser.parse_args().options_file.read_text("utf8"))

    # Imported here, so that the launcher can check a model without loading Flink.
    from pyflink.datastream import StreamExecutionEnvironment

    from cluster_serving.connectors.redis import Backoff, connect
    from cluster_serving.connectors.reporting import publish_limits
    from cluster_serving.connectors.stream import create_groups
    from cluster_serving.job.topology import build

    with connect(options.redis) as client:
        # A Redis that has just started may still be loading its data.
        backoff = Backoff(f"job {options.redis.job}")
        backoff.persist(lambda: create_groups(client, options.redis.job))
        backoff.persist(lambda: publish_limits(client, options.redis))
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env, options)
    env.execute_async(options.redis.job)


if __name__ == "__main__":
    main()
