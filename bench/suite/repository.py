"""Fifty small models in one job, compared with a job of one of them.

CPU seconds are those of all processes of an installation. Throughput is that of a queue which was filled while the
TaskManager was suspended: no client takes a part of the cores.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import harmonic_mean
from typing import Any

import numpy as np
import redis

from cluster_serving.bench.load.stats import ratio
from cluster_serving.bench.suite import models
from cluster_serving.bench.suite.session import BenchSession, Measurement
from cluster_serving.bench.suite.stack import Stack, commands_cpu
from cluster_serving.client import InputQueue
from cluster_serving.protocol.keys import JobKeys

_MOST_STARTS = 2
_SETTLE_S = 20.0
_ANSWER_S = 120.0
_ROW = np.zeros(64, np.float32)

BARS = {
    "start, CPU seconds": "≤ 1.6",
    "memory": "≤ 1.4",
    "idle, cores": "≤ 1.3",
    "one model is asked, requests/s": "≥ 0.95",
    "one model is asked, requests per CPU second": "≥ 0.95",
    "all models are asked, requests/s": "≥ 0.9",
    "all models are asked, requests per CPU second": "≥ 0.9",
}
"""What is measured, and the ratio of fifty models to one that is wanted."""


_UNITS = {"rate": "requests/s", "per_cpu_s": "requests per CPU second"}


class Served:
    """An installation whose job serves one model, or several.

    Args:
        model: Folder of the model, or of the models.
        names: Names of the models.
    """

    def __init__(self, model: Path, names: Sequence[str]) -> None:
        self._model, self.names = model, names
        self.stack = Stack()
        # redis-py types its commands as if they might be awaitable.
        self._db: Any = redis.Redis.from_url(self.stack.redis_url)

    def start(self) -> dict[str, float]:
        """Start everything, and ask each model once. Return the CPU seconds of that, and the memory after it."""
        before, began = commands_cpu(), time.perf_counter()
        self.stack.add(self._job, self._model, **{"modelParallelism": None, "threadPerModel": None})
        for name in self.names:
            with InputQueue(url=self.stack.redis_url, name=name) as queue:
                queue.predict({"x": _ROW}, timeout=_ANSWER_S)
        passed = time.perf_counter() - began
        return {"cpu_s": self.stack.cpu() + commands_cpu() - before, "s": passed, "bytes": self.stack.memory()}

    def drain(self, names: Sequence[str], count: int) -> dict[str, float]:
        """Have `count` requests for these models answered. Return requests per second, and per CPU second."""
        pids = self.stack.roles()["TaskManager"]
        with _suspended(pids):
            answered = [JobKeys(name).answered for name in names]
            before = self._sum(answered)
            for name in names:
                self._fill(name, count // len(names))
            cpu = self.stack.cpu()
        began = time.perf_counter()
        while (done := self._sum(answered) - before) < count // len(names) * len(names):
            if time.perf_counter() - began > _ANSWER_S:
                raise TimeoutError(f"{done} of {count} requests were answered after {_ANSWER_S:g} s")
            time.sleep(0.02)
        passed = time.perf_counter() - began
        return {"rate": done / passed, "per_cpu_s": done / (self.stack.cpu() - cpu)}

    @property
    def _job(self) -> str:
        return self.names[0] if len(self.names) == 1 else "bench"

    def _fill(self, name: str, count: int) -> None:
        """Queue copies of a request."""
        with InputQueue(url=self.stack.redis_url, name=name) as queue:
            queue.enqueue("first", x=_ROW)
        stream = next(each for each in JobKeys(name).streams if self._db.xlen(each))
        [(_, fields)] = self._db.xrevrange(stream, count=1)
        with self._db.pipeline(transaction=False) as pipeline:
            for number in range(count - 1):
                pipeline.xadd(stream, {**fields, b"uri": f"copy-{number}"})
            pipeline.execute()

    def _sum(self, counters: Sequence[str]) -> int:
        return sum(int(value or 0) for value in self._db.mget(counters))


def repository(session: BenchSession) -> Measurement:
    """Measure fifty small models in one job against a job of one of them; each has an installation of its own.

    Where all models are asked, `one` is the mean of a model of each engine that is asked alone in the same job.
    """
    folder = models.ensure(session.folder / "models", "repository")
    names = sorted(path.name for path in folder.iterdir())
    count, figures = session.settings.waiting, dict[str, tuple[list[float], list[float]]]()

    def note(name: str, fifty: float, one: float) -> None:
        for values, value in zip(figures.setdefault(name, ([], [])), (fifty, one), strict=True):
            values.append(value)

    # Two installations of each show whether figures agree; with more, the row would take over five minutes.
    for _ in range(min(_MOST_STARTS, session.settings.rounds)):
        with ExitStack() as stacks:
            both = Served(folder, names), Served(folder / names[0], names[:1])
            started = []
            for served in both:
                stacks.enter_context(served.stack)
                started.append(served.start())
            note("start, CPU seconds", *(each["cpu_s"] for each in started))
            note("memory", *(each["bytes"] for each in started))
            time.sleep(_SETTLE_S)
            note("idle, cores", *_at_once([partial(each.stack.share, session.settings.idle) for each in both]))
            fifty, one = both
            for served in both:
                # The first batches of each size cost more.
                served.drain(served.names, count)
            for _ in range(session.settings.rounds):
                hot, alone = fifty.drain(names[:1], count), one.drain(names[:1], count)
                every, kinds = fifty.drain(names, count), [fifty.drain([name], count) for name in _one_of_each(names)]
                for key, unit in _UNITS.items():
                    note(f"one model is asked, {unit}", hot[key], alone[key])
                    note(f"all models are asked, {unit}", every[key], harmonic_mean(kind[key] for kind in kinds))
    return {"figures": {name: {"fifty": a, "one": b, "ratio": ratio(a, b)} for name, (a, b) in figures.items()}}


def _at_once(questions: Sequence[Callable[[], float]]) -> list[float]:
    """Return the answers to questions that only wait."""
    with ThreadPoolExecutor(len(questions)) as pool:
        return [future.result() for future in [pool.submit(question) for question in questions]]


def _one_of_each(names: Sequence[str]) -> list[str]:
    """Return a model of each engine, which the names begin with."""
    return list({name.partition("-")[0]: name for name in names}.values())


@contextmanager
def _suspended(pids: Sequence[int]) -> Iterator[None]:
    """Suspend processes for less than Flink's heartbeat timeout of 30 s."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
