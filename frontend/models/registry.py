"""The models that the front end serves: their names and versions, and what their slots report."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster_serving.frontend.errors import ModelNotFound, StartError
from cluster_serving.frontend.models.dispatch import Dispatch
from cluster_serving.protocol.connection import translated
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.keys import DEFAULT_JOB, JOBS_KEY, secret_key, slots_key, stats_key, streams_of
from cluster_serving.protocol.slots import SILENT_AFTER_S, SlotReport, read_reports
from cluster_serving.protocol.stats import JobStats

log = logging.getLogger(__name__)

VERSION = "1"
"""Version of a model for which no file names one."""

_FRESH = 1.0
"""Seconds for which the reports of the slots are not read again."""


@dataclass(frozen=True, slots=True)
class Servable:
    """A model and the job that serves it.

    Attributes:
        name: `modelName`.
        version: `modelVersion`.
        job: `redisInputQueue`, which is the job's name.
        redis: `redisHost:redisPort`; empty if the file does not name one.
    """

    name: str
    version: str
    job: str
    redis: str = ""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as clients of the front end see it.

    Attributes:
        reports: Reports of the job's slots, by index.
    """

    name: str
    reports: tuple[SlotReport, ...]
    version: str = VERSION
    job: str = ""

    @property
    def loaded(self) -> SlotReport | None:
        """Report of a slot that has loaded the model and is not silent; None if there is none."""
        return next((report for report in self.reports if report.state == "ready"), None)

    @property
    def described(self) -> SlotReport | None:
        """Report with the model's signature, also while its job is stopped or starts again; None if there is none."""
        return self.loaded or next((report for report in self.reports if report.engine), None)

    @property
    def failed(self) -> SlotReport | None:
        """Report of a slot that could not load the model, if no other slot has loaded it."""
        return None if self.loaded else next((report for report in self.reports if report.state == "failed"), None)

    @property
    def is_wanted(self) -> bool:
        """True if the model's job was started and not stopped since, whether it runs or not."""
        return any(report.state != "stopped" for report in self.reports)

    @property
    def state(self) -> str:
        """`ready`, `loading`, `failed`, `stopped`, or `unknown` if no slot has ever reported."""
        if self.loaded:
            return "ready"
        state = "failed" if self.failed else next((report.state for report in self.reports), "unknown")
        return "stopped" if state == "silent" else state


class ModelRegistry:
    """Models by name and version, read from Redis at most once a second; used by one event loop.

    All methods that read or write Redis raise `RedisUnavailable` if Redis cannot be reached, and those that return
    certain models raise `ModelNotFound` if one of them does not exist.

    Args:
        dispatch: The way to the jobs.
        jobs: Names of the jobs to serve; empty for all that Redis knows. A Redis Cluster keeps no list of its jobs:
            there they are those of `dispatch`.
        default: Name of the model of requests that name none; empty for `DEFAULT_JOB`, or else the only model.
        servables: Models under other names than those of their jobs, instead of `jobs`.
        required: Names of the models without which the front end is not ready; empty for those that `required` lists.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        jobs: Sequence[str] = (),
        default: str = "",
        servables: Sequence[Servable] = (),
        required: Sequence[str] = (),
    ) -> None:
        self._dispatch = dispatch
        self._default = default
        self._configured = tuple(servables) or _served_by(jobs or dispatch.jobs)
        self._required = frozenset(required)
        self._versions = {(s.name, s.version): ServedModel(s.name, (), s.version, s.job) for s in self._configured}
        self._latest: dict[str, ServedModel] = {}
        self._problems: Mapping[str, ServingError] = {}
        self._read_at = 0.0
        self._seen_at: dict[tuple[str, str], float] = {}
        self._reading: asyncio.Task[None] | None = None

    async def latest(self) -> Mapping[str, ServedModel]:
        """Return the last version of each model, by name."""
        if time.monotonic() - self._read_at >= _FRESH:
            # All callers await one task: with a lock they would go on one by one, a turn of the event loop each.
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read())
                self._reading.add_done_callback(lambda task: task.cancelled() or task.exception())
            try:
                await asyncio.shield(self._reading)
            except ServingError as error:
                raise error.renewed() from None
        return self._latest

    async def versions(self) -> list[ServedModel]:
        """Return all versions of all models, in the order of their names."""
        await self.latest()
        return self.last_read()

    def last_read(self) -> list[ServedModel]:
        """Return `versions` as they were when Redis was asked last."""
        return [model for _, model in sorted(self._versions.items())]

    async def model(self, name: str = "", version: str = "") -> ServedModel:
        """Return one model: the default model if the name is empty, the last version if the version is empty."""
        latest = await self.latest()
        name = name or self._default_name()
        model = self._versions.get((name, version)) if version else latest.get(name)
        if model is None:
            wanted = f"{name!r} of version {version!r}" if version else repr(name)
            known = ", ".join(f"{name} ({version})" for name, version in sorted(self._versions)) or "none"
            raise ModelNotFound(f"there is no model {wanted}; there are: {known}")
        return model

    async def of_job(self, job: str) -> ServedModel:
        """Return the model that a job serves."""
        for model in await self.versions():
            if model.job == job:
                return model
        raise ModelNotFound(f"there is no job {job!r}")

    async def described(self) -> dict[str, SlotReport | None]:
        """Return the report with the signature of each model, by name; the default model's also by the empty name."""
        reports = {name: model.described for name, model in (await self.latest()).items()}
        return reports | {"": reports.get(self._default_name())}

    async def required(self) -> list[ServedModel]:
        """Return the models without which this front end is not ready.

        They are those of `required`; or those of `jobs` or `servables`; or `default` and all whose jobs were started
        and not stopped since.
        """
        models = await self.versions()
        if self._required:
            for name in self._required:
                await self.model(name)
            return [model for model in models if model.name in self._required]
        if self._configured:
            return models
        wanted = {model.name: model for model in models if model.is_wanted}
        if self._default or not wanted:
            default = await self.model()
            wanted[default.name] = default
        return list(wanted.values())

    async def queue_lengths(self, models: Sequence[ServedModel]) -> list[int]:
        """Return the number of unanswered requests of each model, of all priorities together."""

        def lengths(pipeline: Any, job: str) -> None:
            for stream in streams_of(job):
                pipeline.xlen(stream)

        return [sum(replies) for replies in await self._dispatch.ask_all([model.job for model in models], lengths)]

    async def stats(self, models: Sequence[ServedModel]) -> list[JobStats]:
        """Return the totals of the job of each model."""
        answers = await self._dispatch.ask_all(
            [model.job for model in models], lambda pipeline, job: pipeline.hgetall(stats_key(job))
        )
        return [JobStats.read(fields) for (fields,) in answers]

    async def store_secret(self, fields: Mapping[str, str]) -> None:
        """Store the secret of encrypted models under the keys that the jobs read."""
        jobs = [model.job for model in await self.versions()]
        # Jobs that start later read the key without a job's name, which a cluster does not have.
        await self._dispatch.ask_all(
            jobs if self._dispatch.jobs else ["", *jobs],
            lambda pipeline, job: pipeline.hset(secret_key(job), mapping=fields),
        )

    def _default_name(self) -> str:
        names = list(self._latest)
        if self._default or DEFAULT_JOB in names:
            return self._default or DEFAULT_JOB
        running = [name for name in names if self._latest[name].state not in ("stopped", "unknown")]
        return next((only[0] for only in (names, running) if len(only) == 1), DEFAULT_JOB)

    async def _read(self) -> None:
        servables = self._configured or _served_by(await self._known_jobs())

        def state(pipeline: Any, job: str) -> None:
            pipeline.hgetall(slots_key(job))
            pipeline.time()

        answers = await self._dispatch.ask([servable.job for servable in servables], state)
        models = [_served(servable, answer) for servable, answer in zip(servables, answers, strict=True)]
        problems = {
            servable.job: model
            for servable, model in zip(servables, models, strict=True)
            if isinstance(model, ServingError)
        }
        if problems and all(isinstance(model, ServingError) for model in models):
            raise next(iter(problems.values()))
        for job in problems.keys() - self._problems.keys():
            log.warning("the state of job %s cannot be read: %s", job, problems[job])
        self._problems = problems
        self._read_at = now = time.monotonic()
        versions: dict[tuple[str, str], ServedModel] = {}
        for servable, model in zip(servables, models, strict=True):
            key = servable.name, servable.version
            if isinstance(model, ServingError) or not model.reports:
                # For instance, one node of a cluster is down: the models of its jobs stay as they were read last.
                model = self._versions.get(key, ServedModel(servable.name, (), servable.version, servable.job))
            versions[key] = model
        self._seen_at |= dict.fromkeys(versions, now)
        # After a FLUSHALL, a job that runs reports itself again within seconds.
        kept = {key: model for key, model in self._versions.items() if now - self._seen_at[key] < SILENT_AFTER_S}
        self._versions = kept | versions
        self._latest = {model.name: model for model in self._versions.values()}

    async def _known_jobs(self) -> list[str]:
        db: Any = self._dispatch.dispatcher().db
        with translated(db):
            return sorted(name.decode() for name in await db.smembers(JOBS_KEY))


def _served_by(jobs: Sequence[str]) -> tuple[Servable, ...]:
    return tuple(Servable(job, VERSION, job) for job in jobs)


def _served(servable: Servable, answer: list[Any] | ServingError) -> ServedModel | ServingError:
    """Return the model of a job from the replies of Redis, or the error if they cannot be read."""
    if isinstance(answer, ServingError):
        return answer
    fields, (now, _) = answer
    try:
        reports = tuple(read_reports(fields, now))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return ServingError(f"the reports of the slots of job {servable.job!r} cannot be read: {error!r}")
    return ServedModel(servable.name, reports, servable.version, servable.job)


class _Loader(yaml.SafeLoader):
    """Loader of tagged entries as mappings with the keys `tag` and `line`."""


def _tagged(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    if not isinstance(node, yaml.MappingNode):
        raise yaml.constructor.ConstructorError(None, None, "expected keys and values", node.start_mark)
    fields = {str(key): value for key, value in loader.construct_mapping(node, deep=True).items()}
    return fields | {"tag": suffix.strip("<>"), "line": node.start_mark.line + 1}


yaml.add_multi_constructor("!", _tagged, _Loader)
yaml.add_multi_constructor("", _tagged, _Loader)


def read_servables(path: Path) -> tuple[Servable, ...]:
    """Read the original's file `servables-conf.yaml`: models by name and version, each served by a job.

    Raises:
        StartError: If the file cannot be read, names a model that no job serves, or names a model twice.
    """
    try:
        content = yaml.load(path.read_text("utf8"), _Loader)  # noqa: S506 - a SafeLoader
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"{path} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise StartError(f"{path} is not valid YAML: {error}") from None
    entries = content.get("modelMetaDataList") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries:
        raise StartError(f"{path} has no list modelMetaDataList with a model in it")
    servables = tuple(_servable(path, entry) for entry in entries)
    if len({(servable.name, servable.version) for servable in servables}) < len(servables):
        raise StartError(f"{path} names a model of the same version twice")
    if len({servable.redis for servable in servables}) > 1:
        raise StartError(f"{path} names jobs of different Redis; start a front end for each Redis")
    return servables


def _servable(path: Path, entry: Any) -> Servable:
    if not isinstance(entry, dict) or "modelName" not in entry:
        raise StartError(f"{path}: an entry of modelMetaDataList has no modelName")
    where = f"{path}, line {entry.get('line', '?')}: model {entry['modelName']}"
    if entry.get("tag") == "InferenceModelMetaData" or "redisInputQueue" not in entry:
        raise StartError(
            f"{where} is to run inside the front end, or names no redisInputQueue; start it as a job of its own, and "
            "name that job as redisInputQueue of a ClusterServingMetaData"
        )
    redis = f"{entry['redisHost']}:{entry.get('redisPort', 6379)}" if "redisHost" in entry else ""
    return Servable(
        str(entry["modelName"]), str(entry.get("modelVersion", VERSION)), str(entry["redisInputQueue"]), redis
    )
