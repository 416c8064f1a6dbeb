"""Health of the jobs: shown by their answers to clients, or to a probe while no client asks."""

import asyncio
import math
import time
from dataclasses import dataclass, field

import numpy as np

from cluster_serving.frontend.models.dispatch import Dispatch
from cluster_serving.frontend.models.registry import ModelRegistry, PublishedModel
from cluster_serving.protocol.errors import RedisUnavailable, ResultTimeout, ServingError
from cluster_serving.protocol.hosting.control import UNLOADED
from cluster_serving.protocol.inputs import Input
from cluster_serving.protocol.slots import SlotReport, TensorSpec

_UNANSWERED = (ResultTimeout, RedisUnavailable)

_FORGET = 60.0
"""Seconds after the last question for which a job is still watched."""

_NOT_RUNNING = {"stopped": "its job is stopped", UNLOADED: "it was unloaded"}
_NOT_LOADED = "no slot has loaded it"

_LARGEST = 1 << 24
"""Most elements of an input of a probe."""


@dataclass(slots=True)
class State:
    """Health of one job.

    Attributes:
        answered_at: Time of its last answer, on the monotonic clock; 0 for never.
        asked_at: Time of the last question about its health, on the same clock.
        problem: Reason why it is not ready; empty if it is.
        watcher: Task that sends the probes.
        refusing: Models that have refused the zeros of a probe, maybe with a dead letter; others are asked first.
    """

    answered_at: float = 0.0
    asked_at: float = 0.0
    problem: str = "it has not answered yet"
    watcher: asyncio.Task[None] | None = None
    refusing: set[str] = field(default_factory=set)


class Health:
    """Watches the jobs whose health is asked for.

    Every answer to a client shows that a job is alive. After `interval` seconds without an answer, a probe is sent: a
    request of zeros, which the job must answer within `timeout` seconds. The reports of slots are no proof, as they
    outlive a TaskManager that died. The models of one job share its slots, and a probe to one of them is enough.
    """

    def __init__(self, registry: ModelRegistry, dispatch: Dispatch, interval: float, timeout: float) -> None:
        self._registry = registry
        self._dispatch = dispatch
        self._interval = interval
        self._timeout = timeout
        self._states: dict[str, State] = {}
        # Jobs by the queues of their models; a job of one model is its own queue.
        self._hosts: dict[str, str] = {}
        self._stopping = False

    def note_answer(self, job: str) -> None:
        """Note that a job, or a model of a job that serves several, has answered a request."""
        if (state := self._states.get(self._hosts.get(job, job))) is not None:
            state.answered_at = time.monotonic()
            state.problem = ""

    def forget(self, job: str) -> None:
        """Forget what is known of a job, which was started or stopped."""
        state = self._states.pop(job, None)
        if state is not None and state.watcher is not None:
            state.watcher.cancel()

    def is_ready(self, model: PublishedModel) -> bool:
        """Return True if the job of a model answers; if it is not watched, as its slots report."""
        state = self._states.get(model.host or model.job)
        if state is None:
            return model.state == "ready"
        # A job of several models may answer for others.
        has_model = bool(model.loaded) or not model.host
        return has_model and not state.problem

    async def problems(self) -> list[str]:
        """Return the reasons why this front end cannot answer requests; empty if it can."""
        if self._stopping:
            return ["the front end is stopping"]
        try:
            models = await self._registry.required()
        except ServingError as error:
            return [str(error)]
        # The first model of each job is asked before the others, which then share its probe.
        first = {model.host or model.job: model for model in reversed(models)}.values()
        others = [model for model in models if model not in first]
        found = await asyncio.gather(*map(self.problem, first))
        found += await asyncio.gather(*map(self.problem, others))
        return [problem for problem in found if problem]

    async def problem(self, model: PublishedModel) -> str:
        """Return why a model cannot answer requests; empty if it can. The model's job is watched from now on."""
        if model.loaded is None:
            return f"model {model.name}: {_why_not_loaded(model)}"
        job = model.host or model.job
        self._hosts[model.job] = job
        state = self._states.setdefault(job, State())
        state.asked_at = time.monotonic()
        if state.watcher is None or state.watcher.done():
            await self._look(job, state)
        # During the wait, another caller may have started the watcher.
        if state.watcher is None or state.watcher.done():
            state.watcher = asyncio.create_task(self._watch(job, state))
        return f"model {model.name}: {state.problem}" if state.problem else ""

    def begin_stop(self) -> None:
        """Be not ready any more."""
        self._stopping = True

    async def close(self) -> None:
        """Stop watching."""
        watchers = [state.watcher for state in self._states.values() if state.watcher is not None]
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)

    async def _watch(self, job: str, state: State) -> None:
        while time.monotonic() - state.asked_at < _FORGET:
            since = time.monotonic() - state.answered_at
            await asyncio.sleep(min(self._interval, max(self._interval - since, 0.05)))
            await self._look(job, state)
        self._states.pop(job, None)

    async def _look(self, job: str, state: State) -> None:
        if time.monotonic() - state.answered_at < self._interval:
            return
        try:
            models = await self._registry.of_job(job)
            # No request can be made up for inputs that are not declared; such a model is as its slots report.
            declared = [(model, model.loaded) for model in models if model.loaded and model.loaded.inputs]
            if not declared:
                state.problem = "" if any(model.loaded for model in models) else _NOT_LOADED
                return
            model, report = min(declared, key=lambda pair: pair[0].name in state.refusing)
            # Not through `predict`: the job may be healthy while the concurrency limit is reached.
            fields = await self._dispatch.dispatcher(job).request(model.job, zeros(report), self._timeout)
            if b"error" in fields:
                state.refusing.add(model.name)
        except _UNANSWERED as error:
            # A client may have been answered in the meantime.
            if time.monotonic() - state.answered_at > self._interval:
                state.problem = f"no answer from its job: {error}"
        except ServingError as error:
            if error.code == "QUEUE_FULL":
                state.problem = str(error)
        else:
            self.note_answer(job)


def _why_not_loaded(model: PublishedModel) -> str:
    """Return why a model that no slot has loaded cannot answer requests."""
    for report in model.reports:
        if report.error:
            return report.error
    if model.absence and any(report.state == "silent" for report in model.reports):
        # No command has stopped the job.
        return model.absence
    return _NOT_RUNNING.get(model.state, _NOT_LOADED)


def zeros(report: SlotReport) -> dict[str, Input]:
    """Return a request of zeros, or empty strings, for a model; dimensions of any size are 1."""
    return {spec.name or str(index): _zeros(spec, report.already_batched) for index, spec in enumerate(report.inputs)}


def _zeros(spec: TensorSpec, batched: bool) -> Input:
    sizes = (None,) if spec.record_shape is None else spec.record_shape
    shape = tuple(1 if size is None else size for size in sizes)
    if batched:
        shape = (1, *shape)
    if math.prod(shape) > _LARGEST:
        shape = (1,)
    return np.full(shape, "", object) if spec.dtype == "str" else np.zeros(shape, spec.dtype or "f4")
