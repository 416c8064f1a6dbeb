"""The last hour of each job: the Redis stream `<jobName>:history`, to which all front ends add together."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from contextlib import suppress
from typing import Any

from cluster_serving.frontend.models.dispatch import Dispatch
from cluster_serving.frontend.models.figures import readings as read
from cluster_serving.frontend.models.registry import ModelRegistry
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.figures.exposition import Reading
from cluster_serving.protocol.figures.metrics import DEAD, OLDEST, QUEUE
from cluster_serving.protocol.keys import JobKeys

log = logging.getLogger(__name__)

STEP_S = 10
"""Seconds from one sample to the next."""

_FIRST_S = 1
"""Seconds to the first sample: requests before it are in no chart."""

KEPT_S = 3600
"""Seconds that a sample is kept."""


def figures(reading: Reading) -> dict[str, Any]:
    """Return queue and dead letters of a job, and the totals of each version; the time is in milliseconds."""
    return {
        "time": round(1000 * reading.time),
        "queue": reading.of_job[QUEUE.name],
        "oldest": reading.of_job[OLDEST.name] / 1e6,
        "dead": reading.of_job[DEAD.name],
        "versions": {
            version: {
                "requests": totals.requests,
                "failures": totals.failures,
                "codes": totals.codes,
                "batches": totals.batches,
                "latency": totals.latency_ms,
            }
            for version, totals in reading.totals().items()
        },
    }


class History:
    """Samples of the figures of all jobs that this front end serves; used by one event loop.

    The id of a sample is the begin of its step by the clock of Redis, which takes no id twice. So one of many front
    ends, and of their processes, adds the sample of a step. The jobs do nothing for it.
    """

    def __init__(self, registry: ModelRegistry, dispatch: Dispatch) -> None:
        self._registry = registry
        self._dispatch = dispatch

    async def run(self) -> None:
        """Add samples until the task is cancelled."""
        step = _FIRST_S
        while True:
            # Front ends that were started together would ask at the same moment.
            await asyncio.sleep(step * random.uniform(0.5, 1))  # noqa: S311 - no secret
            step = STEP_S
            try:
                with suppress(ServingError):
                    await self.sample()
            except Exception:
                log.exception("a sample for the page /ui is missing")

    async def sample(self) -> None:
        """Add a sample of each job that has no sample of the present step yet.

        Raises:
            ServingError: If Redis cannot be reached.
        """
        models = await self._registry.versions()
        due = await self._due(list({model.job for model in models}))
        readings = await read(self._dispatch, [model for model in models if model.job in due])
        if readings:
            await self._add({reading.job: reading for reading in readings}, due)

    async def _due(self, jobs: list[str]) -> dict[str, int]:
        """Return the begin of the present step, in milliseconds, for the jobs without a sample of it."""

        def newest(pipeline: Any, job: str) -> None:
            pipeline.time()
            pipeline.xrevrange(JobKeys(job).history, count=1)

        due = {}
        for job, answer in zip(jobs, await self._dispatch.ask(jobs, newest), strict=True):
            if not isinstance(answer, ServingError):
                (seconds, _), entries = answer
                begin = 1000 * (seconds - seconds % STEP_S)
                if not entries or int(entries[0][0].partition(b"-")[0]) < begin:
                    due[job] = begin
        return due

    async def _add(self, readings: dict[str, Reading], due: dict[str, int]) -> None:
        def add(pipeline: Any, job: str) -> None:
            key, told = JobKeys(job).history, json.dumps(figures(readings[job]), separators=(",", ":"))
            pipeline.xadd(key, {"figures": told}, id=f"{due[job]}-0", maxlen=KEPT_S // STEP_S, approximate=False)
            pipeline.expire(key, 2 * KEPT_S)

        # Redis refuses an id that another front end has added meanwhile.
        await self._dispatch.ask(list(readings), add)
