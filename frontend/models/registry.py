"""The models that the front end serves: their names and versions, and what their slots report."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from cluster_serving.frontend.errors import ModelNotFound
from cluster_serving.frontend.models.dispatch import RETRY_BUDGET, Dispatch
from cluster_serving.frontend.models.servables import ServableModel
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.generations import CANARY, Generations
from cluster_serving.protocol.hosting.control import UNLOADED
from cluster_serving.protocol.hosting.models import read_models, reports_of
from cluster_serving.protocol.keys import DEFAULT_JOB, JOBS_KEY, REFUSED_MODEL, JobKeys, to_text
from cluster_serving.protocol.redis.connection import RetryBudget, translated
from cluster_serving.protocol.redis.reconnecting import persistent
from cluster_serving.protocol.slots import HEARTBEAT_S, SILENT_AFTER_S, SlotReport, at_once, read_reports
from cluster_serving.protocol.versions import FIRST, choose, not_served

log = logging.getLogger(__name__)

_NOT_WANTED = ("stopped", UNLOADED)
"""States of the slots of a job that was stopped on purpose."""

_FRESH = 1.0
"""Seconds for which the reports of the slots are not read again."""

_BEATS_MISSED_S = 2 * HEARTBEAT_S
"""Seconds after a failure of Redis in which heartbeats may be missing because of it."""

_STALE = 1.5
"""Seconds after which callers wait for the reports to be read; until then they get those that were read before."""

_UNKNOWN = 0.1
"""The same for callers of a model that is unknown or not ready: they wait for the next of ten reads a second."""


@dataclass(frozen=True)
class PublishedModel:
    """A model as clients of the front end see it.

    Attributes:
        reports: Reports of the job's slots, by index.
        version: Version, from the file of servables or else from the reports.
        numbered: The version is that of the model's folder or of the file; otherwise it is the number of the update.
        asked: Version that requests name in the queue; empty if they may be answered by any.
        generation: Number of the generation of the job, while it has a canary; otherwise None.
        canary: The model is that of the canary, which gets a share of the requests.
        refused: Reason why a new model in the folder is not served (`watchModel`); empty if there is none.
        expected: A slot may answer soon though none reports so: a command starts or changes the job, or nothing tells.
        host: Name of the job that serves this model among others; empty if `job` is a job of its own.
    """

    name: str
    reports: tuple[SlotReport, ...]
    version: str = FIRST
    job: str = ""
    numbered: bool = False
    asked: str = ""
    generation: int | None = None
    canary: bool = False
    refused: str = ""
    expected: bool = False
    host: str = ""

    @classmethod
    def of(cls, servable: ServableModel, reports: Sequence[SlotReport] = ()) -> PublishedModel:
        """Return the model of a servable, from the reports of the slots of its job."""
        model = cls(servable.name, tuple(reports), servable.version or FIRST, servable.job, bool(servable.version))
        report = model.loaded or next(iter(reports), None)
        if servable.version or report is None:
            return model
        return replace(model, version=report.version, numbered=report.numbered)

    def still(self, earlier: PublishedModel) -> PublishedModel:
        """Return the model with the signature that an earlier read has found, if Redis has lost it since.

        Slots of the same start of the job load the model again: the signature will be the same.
        """
        known = earlier.described
        if self.described or known is None:
            return self
        if any(report.state != "loading" or report.submission != known.submission for report in self.reports):
            return self
        reports = tuple(reports_of(known, self.reports))
        return replace(self, reports=reports, version=earlier.version, numbered=earlier.numbered)

    @cached_property
    def loaded(self) -> SlotReport | None:
        """Report of a slot that has loaded the model and is not silent; None if there is none."""
        return next((report for report in self.reports if report.state == "ready"), None)

    @cached_property
    def described(self) -> SlotReport | None:
        """Report with the model's signature, also while its job is stopped or starts again; None if there is none."""
        return self.loaded or next((report for report in self.reports if report.engine), None)

    @cached_property
    def together(self) -> int:
        """Most records of a request to the job."""
        return self.described.together if self.described else 1

    @cached_property
    def at_once(self) -> int:
        """Most records of a request with the job at a time; see `protocol.slots.at_once`."""
        return at_once(self.reports)

    @cached_property
    def post_processing(self) -> str:
        """`postProcessing` of the job; empty if it has none, or no slot has reported it."""
        return self.described.post_processing if self.described else ""

    @cached_property
    def failed(self) -> SlotReport | None:
        """Report of a slot that could not load the model, if no other slot has loaded it."""
        return None if self.loaded else next((report for report in self.reports if report.state == "failed"), None)

    @cached_property
    def absence(self) -> str:
        """Reason why nothing answers requests now, and soon either; empty if a slot does, or loads the model."""
        states = {report.state for report in self.reports}
        if self.expected or not states or not states <= {"stopped", "silent"}:
            return ""
        if states == {"stopped"}:
            return "its job is stopped; cluster-serving-start starts it"
        return (
            f"none of its slots has given a heartbeat for {SILENT_AFTER_S:g} s; cluster-serving-cli status tells what "
            "Flink does about it"
        )

    @property
    def is_wanted(self) -> bool:
        """True if the model's job was started and not stopped since, whether it runs or not.

        A job whose first start has failed does not count: it has never served.
        """
        return any(
            report.state not in _NOT_WANTED and (report.state != "failed" or report.engine) for report in self.reports
        )

    @property
    def is_ended(self) -> bool:
        """True if the model's job was stopped, or unloaded its model."""
        return bool(self.reports) and all(report.state in _NOT_WANTED for report in self.reports)

    @cached_property
    def state(self) -> str:
        """`ready`, `loading`, `failed`, `stopped`, `unloaded`, or `unknown` if no slot has ever reported."""
        if self.loaded:
            return "ready"
        state = "failed" if self.failed else next((report.state for report in self.reports), "unknown")
        return "stopped" if state == "silent" else state


State = tuple[PublishedModel | ServingError, int | None]
"""A model, or the error if its state cannot be read; and the number of the generation of its canary, if it has one."""


class ModelRegistry:
    """Models by name and version, read from Redis at most once a second; used by one event loop.

    All methods that read or write Redis raise `RedisUnavailable` if Redis cannot be reached, and those that return
    certain models raise `ModelNotFound` if one of them does not exist.

    Args:
        dispatch: The way to the jobs.
        jobs: Names of the jobs to serve; empty for all that Redis knows. A Redis Cluster keeps no list of its jobs:
            there they are those of `dispatch`.
        default: Model of requests that name no model; empty for `DEFAULT_JOB`, or else the only model.
        servables: Models under other names than those of their jobs, instead of `jobs`.
        required: Names of the models without which the front end is not ready; empty for those that `required` lists.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        jobs: Sequence[str] = (),
        default: str = "",
        servables: Sequence[ServableModel] = (),
        required: Sequence[str] = (),
    ) -> None:
        self._dispatch = dispatch
        self._default = default
        self._configured = tuple(servables) or _served_by(jobs or dispatch.jobs)
        self._required = frozenset(required)
        self._models = {servable: PublishedModel.of(servable) for servable in self._configured}
        self._versions = _by_version(self._models.values())
        self._latest: dict[str, PublishedModel] = {}
        self._problems: Mapping[str, ServingError] = {}
        self._read_at = self._failed_at = 0.0
        self._seen_at: dict[ServableModel, float] = {}
        # As they were with a signature, also those that Redis has lost.
        self._described: dict[ServableModel, PublishedModel] = {}
        self._reading: asyncio.Task[None] | None = None
        self._retry_budget = RetryBudget(RETRY_BUDGET)

    async def latest(self, stale: float = _STALE) -> Mapping[str, PublishedModel]:
        """Return the last version of each model, by name, as it was `stale` seconds ago or later."""
        age = time.monotonic() - self._read_at
        if age >= min(_FRESH, stale) and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read_again())
            self._reading.add_done_callback(lambda task: task.cancelled() or task.exception())
        if age >= stale and self._reading is not None:
            # All callers await one task: with a lock they would go on one by one, a turn of the event loop each.
            try:
                await asyncio.shield(self._reading)
            except ServingError as error:
                raise error.renewed() from None
        return self._latest

    async def versions(self) -> list[PublishedModel]:
        """Return all versions of all models, in the order of their names and numbers."""
        await self.latest()
        return self.last_read()

    def last_read(self) -> list[PublishedModel]:
        """Return `versions` as they were when Redis was asked last."""
        return sorted(self._versions.values(), key=_order)

    async def model(self, name: str = "", version: str = "") -> PublishedModel:
        """Return one model: the default model if the name is empty, the last version if the version is empty.

        Raises:
            ModelNotFound: If there is no such model.
            VersionNotFound: If its version is not served; the message names those that are.
        """
        latest = await self.latest()
        name = name or self.default_name()
        if name not in latest or not latest[name].loaded:
            # Its job may have been started, or have loaded its model, just now.
            await asyncio.sleep(self._read_at + _UNKNOWN - time.monotonic())
            latest = await self.latest(_UNKNOWN)
        if name not in latest:
            known = ", ".join(f"{model.name} (version {model.version})" for model in self.last_read()) or "none"
            several = ", but a job that serves several" if any(m.host == name for m in latest.values()) else ""
            raise ModelNotFound(f"there is no model {name[:64]!r}{several}; there are: {known}")
        if not version:
            return latest[name]
        served = {model.version: model.numbered for model in self.last_read() if model.name == name}
        chosen = choose(version, served)
        if chosen is None:
            raise not_served(name, version, served)
        model = self._versions[name, chosen]
        # A job need not know the version that a file has for it.
        knows = any(report.version == version for report in model.reports)
        return replace(model, asked=version) if knows else model

    async def of_job(self, job: str) -> list[PublishedModel]:
        """Return the models that a job serves; those that are loaded are the first."""
        await self.latest()
        if found := [model for model in self._models.values() if job in (model.job, model.host)]:
            return sorted(found, key=lambda model: model.loaded is None)
        raise ModelNotFound(f"there is no job {job[:64]!r}")

    def forget(self) -> None:
        """Read the reports of the slots again when they are needed next."""
        self._read_at = -math.inf

    async def described(self) -> dict[str, SlotReport | None]:
        """Return the report with the signature of each model, by name; the default model's also by the empty name."""
        reports = {name: model.described for name, model in (await self.latest()).items()}
        return reports | {"": reports.get(self.default_name())}

    async def required(self) -> list[PublishedModel]:
        """Return the models without which this front end is not ready.

        They are those of `required`; or those of `jobs` or `servables`; or all whose jobs were started and not stopped
        since, and `default`, unless it was stopped or unloaded while others serve.
        """
        models = [model for model in await self.versions() if not model.canary]
        if self._required:
            for name in self._required:
                await self.model(name)
            return [model for model in models if model.name in self._required]
        if self._configured:
            # A model that cannot be loaded does not keep the others of its job from being served.
            return [model for model in models if not (model.host and model.failed)] or models
        wanted = {model.name: model for model in models if model.is_wanted}
        if self._default in {model.host for model in models} - {""}:
            return list(wanted.values()) or models
        if self._default or not wanted:
            default = await self.model()
            if not (wanted and default.is_ended):
                wanted[default.name] = default
        return list(wanted.values())

    def default_name(self) -> str:
        """Return the name, which need not exist, of the model of requests that name no model."""
        names = list(self._latest)
        if self._default or DEFAULT_JOB in names:
            return self._default or DEFAULT_JOB
        running = [name for name in names if self._latest[name].is_wanted]
        return next((only[0] for only in (names, running) if len(only) == 1), DEFAULT_JOB)

    async def _read_again(self) -> None:
        """Read the reports; wait out a lost connection, unless Redis was never there."""
        try:
            with persistent(self._retry_budget.left if self._latest else 0.0), self._retry_budget.watching():
                await self._read()
        except ServingError:
            self._failed_at = time.monotonic()
            raise

    async def _read(self) -> None:
        """Read the models of all jobs; those of a job whose state cannot be read stay as they were read last."""
        states = await self._read_states(self._configured or _served_by(await self._known_jobs()))
        self._note_problems({servable: model for servable, (model, _) in states.items()})
        now = time.monotonic()
        models: dict[ServableModel, PublishedModel] = {}
        for servable, (model, _) in states.items():
            if isinstance(model, ServingError) or not model.reports:
                # For instance, one node of a cluster is down.
                models[servable] = self._models.get(servable, PublishedModel.of(servable))
            else:
                models[servable] = model.still(self._described.get(servable, model))
        absent = {servable: model for servable, model in models.items() if model.absence}
        for servable in await self._expected(absent):
            models[servable] = replace(models[servable], expected=True)
        canaries = await self._read_canaries({one: number for one, (_, number) in states.items() if number is not None})
        self._seen_at |= dict.fromkeys(models, now)
        self._described |= {servable: model for servable, model in models.items() if model.described}
        self._models = self._missed(models, now) | models
        self._versions = _by_version([*canaries, *self._models.values()])
        self._latest = {model.name: model for model in self._models.values()}
        # Last: requests that come during a read, such as the first one, wait for its result.
        self._read_at = now

    async def _read_states(self, servables: Sequence[ServableModel]) -> dict[ServableModel, State]:
        """Return the state of each model that the jobs of some servables serve."""

        def state(pipeline: Any, job: str) -> None:
            keys = JobKeys(job)
            pipeline.hgetall(keys.slots())
            pipeline.time()
            pipeline.hgetall(keys.generations)

        def several(pipeline: Any, job: str) -> None:
            pipeline.hgetall(JobKeys(job).models)

        def refusal(pipeline: Any, job: str) -> None:
            pipeline.hget(JobKeys(job).controller, REFUSED_MODEL)

        jobs = [servable.job for servable in servables]
        # Apart: an access list may forbid these two keys, and a job of one model depends on neither.
        answers, refusals, models_of = await asyncio.gather(
            self._dispatch.ask(jobs, state), self._dispatch.ask(jobs, refusal), self._dispatch.ask(jobs, several)
        )
        return {
            one: state
            for servable, *replies in zip(servables, answers, refusals, models_of, strict=True)
            for one, state in _states(servable, *replies).items()
        }

    def _note_problems(self, read: Mapping[ServableModel, PublishedModel | ServingError]) -> None:
        """Log which jobs cannot be read since now; raise the error of one of them if none can."""
        problems = {servable.job: model for servable, model in read.items() if isinstance(model, ServingError)}
        if problems and all(isinstance(model, ServingError) for model in read.values()):
            raise next(iter(problems.values()))
        for job in problems.keys() - self._problems.keys():
            log.warning("the state of job %s cannot be read: %s", job, problems[job])
        self._problems = problems

    def _missed(
        self, models: Mapping[ServableModel, PublishedModel], now: float
    ) -> dict[ServableModel, PublishedModel]:
        """Return models that were read a moment ago, although Redis has no more of them.

        After a FLUSHALL, a job that runs reports itself again within seconds.
        """
        hosts = {model.host for model in models.values()}
        return {
            one: model
            for one, model in self._models.items()
            if one.job not in hosts and now - self._seen_at[one] < SILENT_AFTER_S
        }

    async def _expected(self, absent: Mapping[ServableModel, PublishedModel]) -> list[ServableModel]:
        """Return those of some servables whose slots may come: a command works on the job, or nothing tells."""
        if not absent:
            return []
        if time.monotonic() - self._failed_at < _BEATS_MISSED_S:
            # The slots could not give heartbeats, either.
            return list(absent)

        def holder(pipeline: Any, job: str) -> None:
            pipeline.exists(JobKeys(job).command)

        answers = await self._dispatch.ask([model.host or model.job for model in absent.values()], holder)
        return [
            one for one, answer in zip(absent, answers, strict=True) if isinstance(answer, ServingError) or answer[0]
        ]

    async def _read_canaries(self, generations: Mapping[ServableModel, int]) -> list[PublishedModel]:
        """Return the models of canaries, which are these generations; those that cannot be read are left out."""
        if not generations:
            return []
        numbers = {servable.job: number for servable, number in generations.items()}

        def state(pipeline: Any, job: str) -> None:
            pipeline.hgetall(JobKeys(job).slots(numbers[job]))
            pipeline.time()

        answers = await self._dispatch.ask([servable.job for servable in generations], state)
        models = [_state(servable, answer)[0] for servable, answer in zip(generations, answers, strict=True)]
        return [
            replace(model, generation=numbers[model.job], canary=True)
            for model in models
            if isinstance(model, PublishedModel) and model.reports
        ]

    async def _known_jobs(self) -> list[str]:
        db: Any = self._dispatch.dispatcher().db
        with translated(db):
            return sorted(name.decode() for name in await db.smembers(JOBS_KEY))


def _served_by(jobs: Sequence[str]) -> tuple[ServableModel, ...]:
    return tuple(ServableModel(job, "", job) for job in jobs)


def _by_version(models: Iterable[PublishedModel]) -> dict[tuple[str, str], PublishedModel]:
    return {(model.name, model.version): model for model in models}


def _order(model: PublishedModel) -> tuple[str, int, str]:
    # Versions of a file may be any text.
    return model.name, int(model.version) if model.version.isdecimal() else 0, model.version


def _states(
    servable: ServableModel,
    answer: list[Any] | ServingError,
    refusal: list[Any] | ServingError,
    several: list[Any] | ServingError,
) -> dict[ServableModel, State]:
    """Return the model of a job as `_state` does; of a job that serves several, each of them under its own name."""
    model, canary = _state(servable, answer, refusal)
    try:
        hosted = read_models(several[0] if isinstance(several, list) else {})
    except (ValueError, TypeError, KeyError) as error:
        wrong = ServingError(f"the models of job {servable.job!r} cannot be read: {error!r}")
        return {servable: (wrong, None)}
    if not hosted or isinstance(model, ServingError):
        return {servable: (model, canary)}
    ones = {ServableModel(name, "", name): report for name, report in hosted.items()}
    return {
        one: (replace(PublishedModel.of(one, reports_of(report, model.reports)), host=servable.job), None)
        for one, report in ones.items()
    }


def _state(
    servable: ServableModel, answer: list[Any] | ServingError, refusal: list[Any] | ServingError | None = None
) -> State:
    """Return the model of a job from the replies of Redis, or the error if they cannot be read.

    The replies are the reports of slots, the time, and perhaps the generations; of those, the number of the canary is
    returned too, if there is one. `refusal` has the reply with the reason why a new model is not served.
    """
    if isinstance(answer, ServingError):
        return answer, None
    fields, (now, _), *more = answer
    try:
        model = PublishedModel.of(servable, read_reports(fields, now))
        generations = Generations.read(*more) if more else Generations()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return ServingError(f"the reports of the slots of job {servable.job!r} cannot be read: {error!r}"), None
    if isinstance(refusal, list) and refusal[0]:
        model = replace(model, refused=to_text(refusal[0]))
    serving, canary = generations.serving, generations.of_role(CANARY)
    if serving is None or canary is None:
        return model, None
    return replace(model, generation=serving.number), canary.number
