"""Entry points of the job: for the launcher, and for `flink run -pym cluster_serving.job.main`."""

from cluster_serving.job.models import check as check_model
from cluster_serving.job.models import requirements as engine_requirements
from cluster_serving.job.models.versions import number_of, version_folders
from cluster_serving.job.options import JobOptions
from cluster_serving.job.program import SUBMITTED, main

__all__ = ["SUBMITTED", "check_model", "engine_requirements", "main", "number_of", "prepare", "version_folders"]


def prepare(options: JobOptions) -> None:
    """Write to Redis what a job and its clients need."""
    # A command that starts no job needs none of it.
    from cluster_serving.job.preparation import prepare

    prepare(options)


if __name__ == "__main__":
    main()
