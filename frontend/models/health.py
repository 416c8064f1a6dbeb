"""Whether jobs answer: by their answers, or, while nobody asks them anything, by a canary's."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass

import numpy as np

from cluster_serving.frontend.models.gateway import Gateway
from cluster_serving.frontend.models.served_model import ServedModel
from cluster_serving.protocol.errors import RedisUnavailable, ResultTimeout, ServingError
from cluster_serving.protocol.inputs import Input
from cluster_serving.protocol.slots import SlotReport, TensorSpec

_UNANSWERED = (ResultTimeout, RedisUnavailable)
_FORGET = 60.0
_LARGEST = 1 << 24


@dataclass(slots=True)
class State:
    """What is known of one job.

    Attributes:
        answered_at: When it answered last, on the monotonic clock; 0 for never.
        asked_at: When somebody wanted to know last.
        problem: Why it is not ready; empty if it is.
        watcher: Who looks after it.
    """

    answered_at: float = 0.0
    asked_at: float = 0.0
    problem: str = "it has not answered yet"
    watcher: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        """Whether it answers."""
        return not self.problem


class Health:
    """Watches the jobs that somebody wants to know about.

    Every answer to a client shows that a job is alive. When there was none for `interval` seconds, a request of zeros
    asks, as the slots' own reports outlive a TaskManager that died.

    Args:
        gateway: The jobs.
        interval: Seconds without an answer until the canary asks.
        timeout: Seconds that it waits.
    """

    def __init__(self, gateway: Gateway, interval: float, timeout: float) -> None:
        self._gateway = gateway
        self._interval = interval
        self._timeout = timeout
        self._states: dict[str, State] = {}

    def note_answer(self, job: str) -> None:
        """A job has answered somebody."""
        state = self._states.get(job)
        if state is not None:
            state.answered_at = time.monotonic()
            state.problem = ""

    def states(self) -> dict[str, State]:
        """What is known, by job."""
        return dict(self._states)

    async def problems(self) -> list[str]:
        """Why this front end cannot answer requests; empty if it can."""
        try:
            models = await self._gateway.required()
        except ServingError as error:
            return [str(error)]
        return [problem for model in models if (problem := await self.problem(model))]

    async def problem(self, model: ServedModel) -> str:
        """Why a model cannot answer requests; empty if it can. From the first call on, its job is watched."""
        if model.loaded is None:
            failed = next((report.error for report in model.reports if report.error), None)
            why = "its job is stopped" if model.state == "stopped" else "no slot has loaded it"
            return f"model {model.name}: {failed or why}"
        state = self._states.setdefault(model.job, State())
        state.asked_at = time.monotonic()
        if state.watcher is None or state.watcher.done():
            await self._look(model.job, state)
        # Of several who ask at once, one starts it.
        if state.watcher is None or state.watcher.done():
            state.watcher = asyncio.create_task(self._watch(model.job, state))
        return f"model {model.name}: {state.problem}" if state.problem else ""

    async def close(self) -> None:
        """Stop watching."""
        for state in self._states.values():
            if state.watcher is not None:
                state.watcher.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await state.watcher

    async def _watch(self, job: str, state: State) -> None:
        while time.monotonic() - state.asked_at < _FORGET:
            since = time.monotonic() - state.answered_at
            await asyncio.sleep(min(self._interval, max(self._interval - since, 0.05)))
            await self._look(job, state)
        del self._states[job]

    async def _look(self, job: str, state: State) -> None:
        if time.monotonic() - state.answered_at < self._interval:
            return
        try:
            report = (await self._gateway.of_job(job)).loaded
            if report is None:
                state.problem = "no slot has loaded it"
                return
            # Not through `predict`: when all places in flight are taken, the job may still be well.
            await self._gateway.exchanges.of(job).request(job, zeros(report), self._timeout)
        except _UNANSWERED as error:
            # A client's answer may have come meanwhile.
            if time.monotonic() - state.answered_at > self._interval:
                state.problem = f"no answer from its job: {error}"
        except ServingError as error:
            # The model may refuse zeros; that it says so shows that it is there.
            if error.code == "QUEUE_FULL":
                state.problem = str(error)
        else:
            self.note_answer(job)


def zeros(report: SlotReport) -> dict[str, Input]:
    """A request of zeros, or empty strings, for a model; sizes that it does not fix are 1."""
    return {spec.name or str(index): _zeros(spec, report.already_batched) for index, spec in enumerate(report.inputs)}


def _zeros(spec: TensorSpec, batched: bool) -> Input:
    shape = tuple(1 if size is None else size for size in spec.record_shape or (None,))
    shape = (1, *shape) if batched else shape
    if spec.record_shape == () and not batched:
        shape = ()
    if np.prod(shape) > _LARGEST:
        shape = (1,)
    return np.full(shape, "", object) if spec.dtype == "str" else np.zeros(shape, spec.dtype or "f4")
