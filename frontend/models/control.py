"""Loading and unloading of models at a client's request, carried out by the controllers of their jobs."""

import asyncio
import time
from typing import Any

from cluster_serving.frontend.errors import Forbidden
from cluster_serving.frontend.models.dispatch import Dispatch
from cluster_serving.protocol.errors import ResultTimeout
from cluster_serving.protocol.hosting.control import MODEL_CONTROL, ControlRequest, decode_outcome
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.redis.connection import translated

_POLL_S = 0.1
_KEPT_S = 3600
"""Seconds after which a list of requests that nobody reads is removed."""


class ModelControl:
    """The way of such requests to the jobs."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch

    async def ask(self, job: str, action: str, timeout: float, model: str = "") -> None:
        """Have the model of a job, or one of several, loaded or unloaded; wait for that, `timeout` seconds at most.

        Raises:
            Forbidden: If the job has no controller that takes such requests.
            ResultTimeout: If it takes longer. What has begun goes on.
            ServingError: If it failed.
        """
        keys = JobKeys(job)
        # redis-py types its commands as if they might not be awaitable.
        db: Any = self._dispatch.dispatcher(job).db
        deadline = time.monotonic() + timeout
        with translated(db):
            if not await db.hexists(keys.controller, MODEL_CONTROL):
                raise Forbidden(
                    f"the job {job} does not {action} models at a client's request: set modelControl: true in its "
                    "config.yaml, and run cluster-serving-restart, which also starts a controller that has died"
                )
            seconds, _ = await db.time()
            request = ControlRequest(action, seconds + timeout, model=model)
            async with db.pipeline(transaction=True) as pipeline:
                pipeline.rpush(keys.control, request.to_json()).expire(keys.control, _KEPT_S)
                await pipeline.execute()
            try:
                while not (outcome := await db.hgetall(keys.control_outcome(request.id))):
                    if time.monotonic() > deadline:
                        raise ResultTimeout(await self._given_up(db, job, request, timeout))
                    await asyncio.sleep(_POLL_S)
            except asyncio.CancelledError:
                await self._withdraw(db, job, request)
                raise
            await db.unlink(keys.control_outcome(request.id))
        if error := decode_outcome(outcome):
            raise error

    async def _given_up(self, db: Any, job: str, request: ControlRequest, timeout: float) -> str:
        if await self._withdraw(db, job, request):
            return f"the controller of job {job} has not begun the {request.action} within {timeout:g} s; not done"
        return f"the {request.action} takes longer than {timeout:g} s, and goes on; the repository index tells its end"

    async def _withdraw(self, db: Any, job: str, request: ControlRequest) -> bool:
        """Remove a request that has not begun; return False if it has."""
        return bool(await db.lrem(JobKeys(job).control, 1, request.to_json()))
