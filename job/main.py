"""Entry points of the job: for the launcher, and for `flink run -pym cluster_serving.job.main`."""

from cluster_serving.job.options import JobOptions
from cluster_serving.job.program import SUBMITTED, main

__all__ = ["SUBMITTED", "main", "prepare"]


def prepare(options: JobOptions) -> None:
    """Write to Redis what a job and its clients need."""
    # Imported here: most commands start no job.
    from cluster_serving.job import preparation

    preparation.prepare(options)


if __name__ == "__main__":
    main()
