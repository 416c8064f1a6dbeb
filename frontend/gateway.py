"""What every protocol of the front end is made of: which models there are, and their answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster_serving.client.connection import translated
from cluster_serving.client.errors import ModelNotFound, ServingError
from cluster_serving.client.exchange import Exchange
from cluster_serving.client.inputs import Input
from cluster_serving.client.protocol import Outputs, decode_outputs, slots_key
from cluster_serving.client.slots import JOBS_KEY, SlotReport, read_reports

_FRESH = 1.0


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A job as its clients see it.

    Attributes:
        name: `jobName`.
        reports: What its slots say, by index.
    """

    name: str
    reports: tuple[SlotReport, ...]

    @property
    def loaded(self) -> SlotReport | None:
        """Report of a slot that has loaded the model; None if there is none."""
        return next((report for report in self.reports if report.state == "ready"), None)


class Gateway:
    """Sends requests to jobs and knows what their models expect; used by one event loop.

    Args:
        redis_url: See `client.exchange.Exchange`.
        jobs: Names of the jobs to serve, the first being the default; empty for all that Redis knows.
    """

    def __init__(self, redis_url: str, jobs: Sequence[str] = (), **redis_options: Any) -> None:
        self.exchange = Exchange(redis_url, **redis_options)
        self._jobs = tuple(jobs)
        self._models: dict[str, ServedModel] = {}
        self._read_at = 0.0
        self._reading = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections."""
        await self.exchange.close()

    async def models(self) -> dict[str, ServedModel]:
        """All models by name; at most a second old.

        Raises:
            RedisUnavailable: Redis cannot be reached.
        """
        async with self._reading:
            if time.monotonic() - self._read_at >= _FRESH:
                with translated(self.exchange.db):
                    self._models = await self._read()
                self._read_at = time.monotonic()
        return self._models

    async def model(self, name: str) -> ServedModel:
        """One model.

        Raises:
            ModelNotFound: There is no job of that name.
            RedisUnavailable: Redis cannot be reached.
        """
        models = await self.models()
        if name not in models:
            raise ModelNotFound(f"there is no model {name!r}; there are: {', '.join(models) or 'none'}")
        return models[name]

    async def predict(
        self, job: str, records: Sequence[Mapping[str, Input]], timeout: float
    ) -> list[Outputs | ServingError]:
        """Answer some records; they go to Redis together.

        Args:
            job: Name of the model.
            records: Inputs by name, of one request each.
            timeout: Seconds to wait.

        Returns:
            The outputs, or what went wrong, of each record, in order.
        """
        return await asyncio.gather(*(self._answer(job, record, timeout) for record in records))

    async def _answer(self, job: str, record: Mapping[str, Input], timeout: float) -> Outputs | ServingError:
        try:
            return decode_outputs(await self.exchange.request(job, record, timeout))
        except ServingError as error:
            return error

    async def _read(self) -> dict[str, ServedModel]:
        # redis-py types its commands as if they might not be awaitable.
        db: Any = self.exchange.db
        names = self._jobs or sorted(name.decode() for name in await db.smembers(JOBS_KEY))
        async with db.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.hgetall(slots_key(name))
            hashes = await pipeline.execute()
        return {
            name: ServedModel(name, tuple(read_reports(fields)))
            for name, fields in zip(names, hashes, strict=True)
            if fields or name in self._jobs
        }
