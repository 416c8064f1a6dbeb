"""Options of the jobs of a target, kept on the machine that started them: to submit a job again, or to roll it back."""

from __future__ import annotations

import shutil
from pathlib import Path

from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.services import flink_cluster, state

_EARLIER = "earlier"


class JobRecords:
    """Records in the private folder of a target's client: one of each generation that runs, by job and number.

    The supervisor of a JobManager submits these again (`launcher.targets.resubmit`). A second folder has, for each job,
    the generation that served before.
    """

    def __init__(self, home: Path) -> None:
        self._jobs = home / flink_cluster.JOBS
        self._earlier = home / _EARLIER

    def remember(self, options: JobOptions) -> None:
        """Keep the options of a generation that runs."""
        state.write(self.of(options), options.to_json())

    def forget(self, job: str, generation: int | None = None) -> None:
        """Drop the options of a generation that was stopped, or of all of the job."""
        for record in self._of_job(job):
            if generation is None or record.stem == f"{job}@{generation}":
                record.unlink(missing_ok=True)

    def forget_all(self) -> None:
        """Drop the options of all jobs, which end with their cluster."""
        shutil.rmtree(self._jobs, ignore_errors=True)

    def recall(self, job: str, submission: str) -> JobOptions | None:
        """Return the options of the generation that a start made; None if this machine does not have them."""
        found = filter(None, map(_read, self._of_job(job)))
        return next((options for options in found if options.submission == submission), None)

    def keep_earlier(self, options: JobOptions) -> None:
        """Keep the options of the generation that served before, in place of those of another one."""
        state.write(self._earlier / f"{options.redis.job}.json", options.to_json())

    def forget_earlier(self, job: str) -> None:
        """Drop the options of the generation that served before."""
        (self._earlier / f"{job}.json").unlink(missing_ok=True)

    def earlier(self, job: str) -> JobOptions | None:
        """Return the options of the generation that served before; None if this machine does not have them."""
        return _read(self._earlier / f"{job}.json")

    def known(self) -> list[JobOptions]:
        """Return the options of all generations that run, and of those that served before."""
        return list(filter(None, map(_read, [*self.all(), *self._earlier.glob("*.json")])))

    def all(self) -> list[Path]:
        """Return the files of all generations that run; their names begin with that of the job."""
        return sorted(self._jobs.glob("*.json"))

    def of(self, options: JobOptions) -> Path:
        """Return the file of a generation that runs."""
        return self._jobs / f"{options.redis.job}@{options.redis.generation}.json"

    def _of_job(self, job: str) -> list[Path]:
        return [record for record in self.all() if record.stem.rpartition("@")[0] == job]


def _read(record: Path) -> JobOptions | None:
    try:
        return JobOptions.from_json(record.read_text("utf8"))
    except (OSError, ValueError):
        # The file is missing, or another version has written it.
        return None
