"""What every protocol of the front end is made of: which models there are, and their answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cluster_serving.frontend.errors import ModelNotFound
from cluster_serving.frontend.models.exchanges import Exchanges
from cluster_serving.frontend.models.servables import VERSION, Servable
from cluster_serving.frontend.models.served_model import ServedModel
from cluster_serving.frontend.server.admission import Flight
from cluster_serving.protocol.connection import translated
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.failover import is_cluster_url
from cluster_serving.protocol.inputs import Input
from cluster_serving.protocol.keys import DEFAULT_JOB, JOBS_KEY, NORMAL, secret_key, slots_key, stats_key, streams_of
from cluster_serving.protocol.results import Outputs, decode_outputs
from cluster_serving.protocol.slots import SlotReport, read_reports
from cluster_serving.protocol.stats import SEEN, SILENT_AFTER_S

log = logging.getLogger(__name__)

_FRESH = 1.0


class Gateway:
    """Sends requests to jobs and knows what their models expect; used by one event loop.

    Args:
        redis_url: See `protocol.connection.open_redis`.
        jobs: Names of the jobs to serve; empty for all that Redis knows. A cluster knows none: there they are these,
            or else the default.
        default: Name of the job that is asked if a request names none; empty for the usual one, or the only one.
        servables: Models by other names than their jobs'; empty for none.
        flight: Limits what is in flight.
        exchange_options: Further arguments of `Exchange`.

    Attributes:
        exchanges: The connections to Redis.
        flight: The limit.
        on_answer: Told of a job that has answered.

    Raises:
        InvalidInput: A job cannot be in a Redis Cluster.
    """

    def __init__(
        self,
        redis_url: str,
        jobs: Sequence[str] = (),
        default: str = "",
        servables: Sequence[Servable] = (),
        flight: Flight | None = None,
        **exchange_options: Any,
    ) -> None:
        if is_cluster_url(redis_url) and not jobs and default:
            jobs = (default,)
        self.exchanges = Exchanges(redis_url, [servable.job for servable in servables] or jobs, **exchange_options)
        self.flight = flight or Flight(1000)
        self.on_answer: Callable[[str], None] = lambda job: None
        self._jobs = tuple(jobs)
        self._default = default
        self._servables = tuple(servables)
        self._models: dict[str, ServedModel] = {}
        self._problems: Mapping[str, ServingError] = {}
        self._read_at = 0.0
        self._look: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Close the connections."""
        await self.exchanges.close()

    async def models(self) -> dict[str, ServedModel]:
        """All models by name, the last version of each; at most a second old.

        Raises:
            RedisUnavailable: Redis cannot be reached.
        """
        if time.monotonic() - self._read_at >= _FRESH:
            # One look for all, and all go on together: with a lock they would one by one, a turn of the loop each.
            if self._look is None or self._look.done():
                self._look = asyncio.create_task(self._refresh())
                self._look.add_done_callback(lambda look: look.cancelled() or look.exception())
            try:
                await asyncio.shield(self._look)
            except ServingError as error:
                raise error.renewed() from None
        return self._models

    async def model(self, name: str = "", version: str = "") -> ServedModel:
        """One model.

        Args:
            name: Its name; empty for the default.
            version: Its version; empty for any.

        Raises:
            ModelNotFound: There is no such model.
            RedisUnavailable: Redis cannot be reached.
        """
        models = await self.models()
        if not name:
            name = self._default_name(models)
        found = models.get(f"{name}\n{version}" if version else name)
        if found is None:
            shown = f"{name!r} of version {version!r}" if version else repr(name)
            known = ", ".join(sorted({f"{m.name} ({m.version})" for m in models.values()})) or "none"
            raise ModelNotFound(f"there is no model {shown}; there are: {known}")
        return found

    async def expected(self) -> dict[str, SlotReport | None]:
        """What the models expect, by name; with an empty name the default.

        Raises:
            RedisUnavailable: Redis cannot be reached.
        """
        models = await self.models()
        reports = {name: model.described for name, model in models.items() if "\n" not in name}
        return reports | {"": reports.get(self._default_name(models))}

    async def of_job(self, job: str) -> ServedModel:
        """The model that a job serves.

        Raises:
            ModelNotFound: There is no such job.
            RedisUnavailable: Redis cannot be reached.
        """
        for model in (await self.models()).values():
            if model.job == job:
                return model
        raise ModelNotFound(f"there is no job {job!r}")

    async def listed(self) -> list[ServedModel]:
        """All models and versions, by name.

        Raises:
            RedisUnavailable: Redis cannot be reached.
        """
        await self.models()
        return self.seen()

    def seen(self) -> list[ServedModel]:
        """All models and versions, by name, as they were when Redis was asked last."""
        return [model for key, model in sorted(self._models.items()) if "\n" in key]

    async def queue_lengths(self, models: Sequence[ServedModel]) -> list[int]:
        """How many requests of each model are not answered yet, of all priorities.

        Raises:
            RedisUnavailable: Redis cannot be reached.
        """

        def lengths(pipeline: Any, job: str) -> None:
            for stream in streams_of(job):
                pipeline.xlen(stream)

        return [sum(found) for found in await self.exchanges.ask_all([model.job for model in models], lengths)]

    async def store_secret(self, fields: Mapping[str, str]) -> None:
        """Store the secret of encrypted models where the jobs look for it.

        Raises:
            RedisUnavailable: Redis cannot be reached.
        """
        jobs = [model.job for model in await self.listed()]

        def store(pipeline: Any, job: str) -> None:
            pipeline.hset(secret_key(job), mapping=fields)

        # Jobs that are to come look there, unless it is a cluster.
        await self.exchanges.ask_all(jobs if self.exchanges.is_cluster else ["", *jobs], store)

    async def required(self) -> list[ServedModel]:
        """The models without which this front end is not ready.

        Raises:
            ModelNotFound: One of them is not there.
            RedisUnavailable: Redis cannot be reached.
        """
        if self._servables:
            return [await self.model(servable.name, servable.version) for servable in self._servables]
        models = await self.models()
        if not self._jobs and self._default_name(models) not in models:
            # None of several jobs is the default: those that are ready have to answer.
            ready = [model for name, model in models.items() if "\n" not in name and model.state == "ready"]
            return ready or [await self.model()]
        return [await self.model(name) for name in self._jobs or ("",)]

    async def predict(
        self, job: str, records: Sequence[Mapping[str, Input]], timeout: float, priority: str = NORMAL
    ) -> list[Outputs | ServingError]:
        """Answer some records; they go to Redis together.

        Args:
            job: Name of the job.
            records: Inputs by name, of one request each.
            timeout: Seconds to wait.
            priority: One of `protocol.keys.PRIORITIES`.

        Returns:
            The outputs, or what went wrong, of each record, in order.
        """
        if len(records) == 1:
            return [await self._answer(job, records[0], timeout, priority)]
        return await asyncio.gather(*(self._answer(job, record, timeout, priority) for record in records))

    async def _answer(
        self, job: str, record: Mapping[str, Input], timeout: float, priority: str
    ) -> Outputs | ServingError:
        deadline = time.monotonic() + timeout
        try:
            async with self.flight.place(timeout):
                seconds = max(deadline - time.monotonic(), 0.001)
                fields = await self.exchanges.of(job).request(job, record, seconds, priority)
                self.on_answer(job)
                return decode_outputs(fields)
        except ServingError as error:
            return error

    def _default_name(self, models: Mapping[str, ServedModel]) -> str:
        if self._default:
            return self._default
        names = [name for name in models if "\n" not in name]
        if DEFAULT_JOB not in names:
            running = [name for name in names if models[name].state != "stopped"]
            return next((found[0] for found in (names, running) if len(found) == 1), DEFAULT_JOB)
        return DEFAULT_JOB

    async def _refresh(self) -> None:
        self._models = await self._read()
        self._read_at = time.monotonic()

    async def _read(self) -> dict[str, ServedModel]:
        servables = self._servables
        if not servables:
            jobs = self._jobs or await self._known_jobs()
            servables = tuple(Servable(job, VERSION, job) for job in jobs)

        def state(pipeline: Any, job: str) -> None:
            pipeline.hgetall(slots_key(job))
            pipeline.hget(stats_key(job), SEEN)
            pipeline.time()

        answers = await self.exchanges.ask([servable.job for servable in servables], state)
        found = [_served(servable, answer) for servable, answer in zip(servables, answers, strict=True)]
        problems = {
            row.job: error for row, error in zip(servables, found, strict=True) if isinstance(error, ServingError)
        }
        if problems and all(isinstance(model, ServingError) for model in found):
            raise next(iter(problems.values()))
        for job in problems.keys() - self._problems.keys():
            log.warning("nothing is known of job %s: %s", job, problems[job])
        self._problems = problems
        models: dict[str, ServedModel] = {}
        for servable, model in zip(servables, found, strict=True):
            key = f"{servable.name}\n{servable.version}"
            if isinstance(model, ServingError):
                # A node of a cluster is away, say: its jobs stay what they were, and those of others are not concerned.
                model = self._models.get(key, ServedModel(servable.name, (), servable.version, servable.job))
            elif not model.reports and not self._jobs and not self._servables:
                continue
            models[servable.name] = models[key] = model
        return models

    async def _known_jobs(self) -> list[str]:
        (exchange,) = self.exchanges.all()
        db: Any = exchange.db
        with translated(db):
            return sorted(name.decode() for name in await db.smembers(JOBS_KEY))


def _served(servable: Servable, answer: list[Any] | ServingError) -> ServedModel | ServingError:
    """The model of a job of which Redis has answered; an error if that makes no sense."""
    if isinstance(answer, ServingError):
        return answer
    fields, seen_ms, (now, _) = answer
    try:
        silent = seen_ms is not None and now - int(seen_ms) / 1000 > SILENT_AFTER_S
        reports = tuple(read_reports(fields))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return ServingError(f"what the slots of job {servable.job!r} report cannot be read: {error!r}")
    return ServedModel(servable.name, reports, servable.version, servable.job, silent)
