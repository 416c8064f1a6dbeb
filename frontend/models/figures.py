"""The figures of jobs: what a front end shows of them, and what no request needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cluster_serving.frontend.models.dispatch import Dispatch
from cluster_serving.frontend.models.registry import PublishedModel
from cluster_serving.frontend.server import failures
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.figures.exposition import Reading, questions
from cluster_serving.protocol.figures.stats import JobStats
from cluster_serving.protocol.keys import JobKeys


async def stats(dispatch: Dispatch, models: Sequence[PublishedModel]) -> list[JobStats]:
    """Return the totals of the job of each model; while it has a canary, those of the model's generation."""
    keys: dict[str, list[str]] = {}
    for model in models:
        keys.setdefault(model.job, []).append(JobKeys(model.job).stats(model.generation))

    def totals(pipeline: Any, job: str) -> None:
        for key in keys[job]:
            pipeline.hgetall(key)

    answers = dict(zip(keys, map(iter, await dispatch.ask_all(list(keys), totals)), strict=True))
    return [JobStats.read(next(answers[model.job])) for model in models]


async def readings(dispatch: Dispatch, models: Sequence[PublishedModel], hosts: bool = False) -> list[Reading]:
    """Return what Redis knows of the figures of the jobs of these models; with `hosts`, also of jobs of several.

    A job whose keys it refuses is missing, as where this front end has not all rights; the log says so.
    """
    canaries = {model.job: [model.generation] for model in models if model.canary and model.generation}

    def ask(pipeline: Any, job: str) -> None:
        for command in questions(job, canaries.get(job, ())):
            pipeline.execute_command(*command)

    jobs = list(dict.fromkeys(job for model in models for job in (model.job, hosts and model.host) if job))
    answers = await dispatch.ask(jobs, ask)
    found = []
    for job, answer in zip(jobs, answers, strict=True):
        if isinstance(answer, ServingError):
            failures.note(ServingError(f"the metrics of job {job} are missing: {answer}"))
        else:
            found.append(Reading.of(job, answer))
    return found
