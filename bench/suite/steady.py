"""A steady load while a server gets a new model, or loses a part: which version answers, and how long none does."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import asdict
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cluster_serving.bench.load.recorder import Checker
from cluster_serving.bench.load.stats import Latency, ratio
from cluster_serving.bench.load.target import Endpoint, Failed, LoadTarget, Lost
from cluster_serving.bench.suite.session import BenchSession, Measurement
from cluster_serving.bench.suite.stack import Unavailable
from cluster_serving.protocol.inputs import Array

OLD, NEW, WRONG, FAILED = "old", "new", "wrong", "failed"
"""What may become of a request: a right answer of one version, a wrong answer, or none."""

Versions = tuple[Sequence[Array], Sequence[Array]]
"""Right answers of the old and of the new version, one per different request each."""

_PAUSE_AFTER_FAILURE = 0.05
_SETTLE = 1.0


class SentRequest(NamedTuple):
    """A request: when it left, when it ended (`time.perf_counter`), and what became of it."""

    sent: float
    ended: float
    outcome: str


class SteadyLoad:
    """Callers that ask one request after another for the time of a `with` block, in a thread of their own.

    Args:
        endpoint: Address and requests.
        callers: Number of callers.
        old: Right answers of the old version, one per different request.
        new: Right answers of the new version.

    Attributes:
        requests: The requests that have ended.
    """

    def __init__(self, endpoint: Endpoint, callers: int, old: Sequence[Array], new: Sequence[Array]) -> None:
        self.requests: list[SentRequest] = []
        self._endpoint, self._callers = endpoint, callers
        # One checker, so that an answer of one version is told from that of the other.
        self._checker = Checker([*old, *new])
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._ask_all()))

    def __enter__(self) -> SteadyLoad:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    async def _ask_all(self) -> None:
        async with aclosing(self._endpoint.open()) as target:
            await asyncio.gather(*(self._ask(target, number) for number in range(self._callers)))

    async def _ask(self, target: LoadTarget, variant: int) -> None:
        variants = len(self._endpoint.records)
        while not self._stopped.is_set():
            variant = (variant + 1) % variants
            sent = time.perf_counter()
            try:
                answer = await target.ask(variant)
                ended = time.perf_counter()
                outcome = self._version(variant, target.read(answer))
            except (Lost, Failed):
                ended, outcome = time.perf_counter(), FAILED
            self.requests.append(SentRequest(sent, ended, outcome))
            if outcome == FAILED:
                await asyncio.sleep(_PAUSE_AFTER_FAILURE)

    def _version(self, variant: int, answer: Array) -> str:
        if self._checker.is_right(variant, answer):
            return OLD
        return NEW if self._checker.is_right(len(self._endpoint.records) + variant, answer) else WRONG


class SteadyRuns:
    """Runs of a steady load against several servers, each of which is changed in the middle.

    Args:
        session: Durations, and where progress is told.
        callers: Number of callers.
    """

    def __init__(self, session: BenchSession, callers: int) -> None:
        self._session, self._callers = session, callers
        self._runs: dict[str, list[Measurement]] = {}
        self._failed: dict[str, str] = {}

    def measure(self, name: str, endpoint: Endpoint, versions: Versions, change: Callable[[], object]) -> None:
        """Measure a change of a server, whose right answers before and after it are the two `versions`."""
        load = SteadyLoad(endpoint, self._callers, *versions)
        result = measure_change(load, change, 10 * self._session.settings.window)
        self._session.report(f"  {name}: longest gap {result['gap_ms']:,.0f} ms, {result['failed']} failed")
        self._runs.setdefault(name, []).append(result)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Note a server that cannot do the work as failed."""
        try:
            yield
        except Unavailable as error:
            self._session.report(f"  {name}: {error}")
            self._failed[name] = str(error)

    def compared(self, ours: str) -> Measurement:
        """Return the runs of our server of that name, and of the others with the `ratio` of our gap to theirs."""
        gaps = [run["gap_ms"] for run in self._runs[ours]]
        others: Measurement = {
            name: {"runs": runs, "ratio": ratio(gaps, [run["gap_ms"] for run in runs])}
            for name, runs in self._runs.items()
            if name not in (ours, *self._failed)
        }
        return {
            "ours": self._runs[ours],
            "others": others | {name: {"failed": error} for name, error in self._failed.items()},
        }


def measure_change(load: SteadyLoad, change: Callable[[], object], seconds: float) -> Measurement:
    """Run a change in the middle of a load, `seconds` after its begin and before its end; see `figures`."""
    with load:
        time.sleep(seconds)
        begin = time.perf_counter()
        change()
        end = time.perf_counter()
        time.sleep(seconds)
    return figures(load.requests, begin - seconds / 2, begin, end)


def figures(requests: Iterable[SentRequest], since: float, begin: float, end: float) -> Measurement:
    """Compare the time of an update with the time before.

    The update lasts from `begin` to `end`, or longer: until the old version has answered for the last time, the new one
    for the first time, and one second has passed; at most until the last request has ended.

    Args:
        requests: All requests.
        since: Begin of the time before the update.
        begin: When the command began that updates.
        end: When it ended.

    Returns:
        `requests`, `failed`, `wrong`: numbers of all requests; `before_ms` and `during_ms`: latencies of the right
        answers; `gap_ms`: longest time without a right answer during the update; `wait_ms`: its longest latency;
        `update_s`: its duration without that second.
    """
    every = sorted(requests, key=lambda request: request.ended)
    right = [request for request in every if request.outcome in (OLD, NEW)]
    last_old = max((request.ended for request in right if request.outcome == OLD), default=begin)
    first_new = min((request.ended for request in right if request.outcome == NEW), default=begin)
    done = max(end, last_old, first_new)
    over = min(done + _SETTLE, every[-1].ended if every else done)
    before = [request for request in right if since <= request.ended < begin]
    during = [request for request in right if begin <= request.ended < over]
    ends = [begin, *(request.ended for request in during), over]
    return {
        "requests": len(every),
        "failed": sum(request.outcome == FAILED for request in every),
        "wrong": sum(request.outcome == WRONG for request in every),
        "before_ms": _latency(before),
        "during_ms": _latency(during),
        "gap_ms": round(1000 * max(later - sooner for sooner, later in pairwise(ends)), 1),
        "wait_ms": _latency(during)["max"],
        "update_s": round(done - begin, 2),
    }


def _latency(requests: Iterable[SentRequest]) -> dict[str, float]:
    return asdict(Latency.of(np.array([request.ended - request.sent for request in requests])))
