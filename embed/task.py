"""What is to be scored, and how."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cluster_serving.embed.predictor import Predictor
from cluster_serving.embed.settings import Settings
from cluster_serving.embed.tables import Model
from cluster_serving.job.options import JobOptions
from cluster_serving.job.remote.url import absolute
from cluster_serving.protocol.json_record import JsonRecord


@dataclass(frozen=True)
class Task(JsonRecord):
    """What is to be scored, and how.

    Attributes:
        input: File, folder or pattern.
        output: Folder for the answers.
        inputs: Columns of each input, as for `predict_table`; empty for those of the same names.
        keep: Columns of the input that are written, too; None for all but those of the inputs.
        options: `JobOptions` as JSON.
        at: Path of the model where it is computed; empty for that of the options.
        sized: True if the configuration has `maxBatchSize`.
        processes: Number of processes, each with a copy of the model.
        secret: Secret and salt of an encrypted model.
        job: `jobName` of the job that computes; empty for processes of this program. The options are empty then.
        redis: Redis of the job.
        share: As for `embed.lane.Lane`.
        max_errors: Most rows with an error of a command that succeeds; None for all but every row.
        flink: Address of the job of Flink that computes; empty if none does.
        flink_name: Name of that job, for the program that submits it.
    """

    input: str
    output: str
    inputs: Mapping[str, Sequence[str]]
    keep: Sequence[str] | None
    options: str = ""
    at: str = ""
    sized: bool = False
    processes: int = 1
    secret: Sequence[str] = ("", "")
    job: str = ""
    redis: str = ""
    share: float = 1.0
    max_errors: int | None = None
    flink: str = ""
    flink_name: str = ""

    @property
    def identity(self) -> str:
        """Digest of what the answers depend on; the options may hold keys."""
        parts: tuple[object, ...] = (self.job,)
        if not self.job:
            settings = self._settings
            model = replace(settings.model, thread_per_model=1)
            parts = (model, settings.image, settings.post_processing, settings.batch.input_already_batched)
        return hashlib.sha256(repr((*parts, absolute(self.input), self.inputs, self.keep)).encode()).hexdigest()

    def for_units(self, count: int) -> Task:
        """Return the task for a number of units: with fewer units than processes, a process has more threads."""
        options = JobOptions.from_json(self.options)
        threads = options.model.thread_per_model * max(1, self.processes // max(1, count))
        options = replace(options, model=replace(options.model, thread_per_model=threads))
        return replace(self, options=options.to_json())

    def model(self) -> Model:
        """Return what computes."""
        if self.job:
            from cluster_serving.embed.lane import Lane

            return Lane(self.redis, self.job, self.share)
        settings = self._settings
        model = replace(settings.model, path=self.at or settings.model.path)
        return Predictor.with_settings(replace(settings, model=model))

    @property
    def _settings(self) -> Settings:
        secret, salt = self.secret
        return replace(Settings.of_job(JobOptions.from_json(self.options), self.sized), secret=(secret, salt))
