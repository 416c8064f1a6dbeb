"""The options of a job, from a checked configuration."""

import os
import re
from dataclasses import fields, replace
from typing import Any, TypeVar

from cluster_serving.job.options import MOST_ROWS, BatchOptions, ImageOptions, JobOptions, ModelOptions, RedisOptions
from cluster_serving.launcher.config import stages
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.config.values import LATEST
from cluster_serving.protocol.host import cgroup

Options = TypeVar("Options", BatchOptions, ImageOptions, JobOptions, ModelOptions, RedisOptions)


_MEASURED = {"model_parallelism", "thread_per_model", "max_batch_size"}
_OMP = "OMP_NUM_THREADS"


def sized_for(config: Config, engine: str) -> Config:
    """Turn `coreNumberPerMachine` into threads and copies as is best for the engine, which `check_model` names.

    Without that key and `threadPerModel`, OMP_NUM_THREADS counts: a number of threads, or `all` for the cores of this
    machine, if the job runs on it.
    """
    cores = config.core_number_per_machine
    if cores is None:
        threads = None if config.thread_per_model else _omp_threads(config)
        return config.model_copy(update={"thread_per_model": threads}) if threads else config
    threads, copies = (cores, 1) if engine == "OpenVINO" else (1, cores)
    return config.model_copy(update={"thread_per_model": threads, "model_parallelism": copies})


def _omp_threads(config: Config) -> int | None:
    # Of a list, which has the threads of nested regions, the first number counts.
    text = os.environ.get(_OMP, "").partition(",")[0].strip()
    if text.lower() == "all":
        return cgroup.cores() if config.target == "local" else None
    return int(text) if text.isdecimal() and int(text) else None


def with_layout(
    config: Config, options: JobOptions, copies: int, threads: int, batch: int
) -> tuple[Config, JobOptions]:
    """Return configuration and options with numbers of copies, of threads of each, and of the records of a batch."""
    keys = {"model_parallelism": copies, "thread_per_model": threads, "max_batch_size": batch}
    options = replace(
        options,
        model_parallelism=copies,
        model=replace(options.model, thread_per_model=threads),
        batch=replace(options.batch, max_batch_size=batch),
    )
    return config.model_copy(update=keys), options


def model_options(config: Config) -> ModelOptions:
    """Return the options of the model."""
    return _options(ModelOptions, "model", config, padding=tuple(config.padding.items()), slot=0, configured="")


def job_options(
    config: Config, submission: str, payload_folder: str = "", generation: int = 1, version: int = 1
) -> JobOptions:
    """Return all options of the job; `submission` identifies this start, and see `jobs.payload_folder`.

    `version` is that of a model without versions (`config.versions.resolved`).
    """
    numbered = config.model_version != LATEST
    return _options(
        JobOptions,
        "job",
        config,
        submission=submission,
        model=model_options(config),
        hosted=(),
        redis=_options(
            RedisOptions,
            "redis",
            config,
            job=config.job_name,
            payload_folder=payload_folder,
            generation=generation,
            version=str(config.model_version if numbered else version),
            numbered=numbered,
            shadow=False,
            stages=tuple(stages.values(config).items()),
        ),
        batch=_options(BatchOptions, "batch", config, max_rows=config.max_batch_size or MOST_ROWS),
        image=_options(
            ImageOptions, "image", config, record_key=config.record_key if config.record_encrypted else None
        ),
    )


def _options(kind: type[Options], group: str, config: Config, **values: Any) -> Options:
    """Return options with the given values, and for all other fields those of the keys of the same names.

    A field may leave out the name of its group, and add its unit: `RedisOptions.timeout_ms` is `redisTimeout`.
    """
    for field in fields(kind):
        if field.name not in values:
            key = re.sub("_(ms|s)$", "", field.name)
            in_group = f"{group}_{key}"
            value = getattr(config, in_group if in_group in Config.model_fields else key)
            # What is to be measured has the default of the options until then.
            values[field.name] = field.default if value is None and field.name in _MEASURED else value
    return kind(**values)
