"""Generator processes: each one sends requests in one of three ways and reports to its parent through a pipe."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from cluster_serving.bench.load import payload
from cluster_serving.bench.load.pipelined import pipelined
from cluster_serving.bench.load.recorder import Checker, LoadRecorder
from cluster_serving.bench.load.stats import Samples, poisson_arrivals
from cluster_serving.bench.load.tally import LoadTally
from cluster_serving.bench.load.target import Endpoint, Failed, LoadTarget, Lost
from cluster_serving.client import InputQueue
from cluster_serving.protocol.errors import ResultTimeout, ServingError
from cluster_serving.protocol.inputs import Array

REPORT_EVERY = 0.1
"""Seconds between two reports to the parent."""

_START_TIMEOUT = 60.0


class Stalled(Exception):
    """A generator process did not start, ended early or did not stop; the text says which."""


@dataclass(frozen=True)
class Load:
    """The requests of one generator process.

    Attributes:
        mode: `closed`, `open` or `pipelined`. In `closed`, each of `concurrency` callers waits for its answer before
            it asks again. In `open`, requests leave at random times, answered or not. In `pipelined`, they leave as
            fast as possible, with `concurrency` requests in flight.
        client: `sync` or `async`, of the native client; HTTP always uses asyncio.
        concurrency: See mode.
        rate: Requests per second of `open`.
        requests: Most requests to send; None: until told to stop.
        seed: Seed of the arrival times.
        check_every: One answer in so many is checked.
    """

    mode: str
    client: str = "async"
    concurrency: int = 1
    rate: float = 0.0
    requests: int | None = None
    seed: int = 0
    check_every: int = 1

    def divide(self, processes: int) -> list[Load]:
        """Divide the load among at most `processes` generator processes; each one gets some of it."""
        count = max(1, processes if self.mode == "open" else min(processes, self.concurrency))

        def part(total: int, index: int) -> int:
            return total // count + (index < total % count)

        return [
            replace(
                self,
                concurrency=part(self.concurrency, index),
                rate=self.rate / count,
                requests=None if self.requests is None else part(self.requests, index),
                seed=self.seed + index,
            )
            for index in range(count)
        ]


class Generators:
    """The generator processes of a measurement, seen from their parent; use it in a `with` statement.

    Attributes:
        pids: Ids of the processes.
        sent: Requests sent so far.
    """

    def __init__(self, endpoint: Endpoint, loads: Sequence[Load], references: Sequence[Array]) -> None:
        context = multiprocessing.get_context("spawn")
        self._stop_timeout = endpoint.timeout + _START_TIMEOUT
        self._reports: Any = context.SimpleQueue()
        # All processes pass it when they are ready, and again when the load begins.
        self._barrier, self._stop = context.Barrier(len(loads) + 1), context.Event()
        signals = self._reports, self._barrier, self._stop
        self._processes = [
            context.Process(target=run, args=(endpoint, load, references, *signals), daemon=True) for load in loads
        ]
        self._samples: list[Samples] = [np.empty((2, 0))]
        self._ends: list[tuple[LoadTally, float]] = []
        self.sent = 0

    def __enter__(self) -> Generators:
        for process in self._processes:
            process.start()
        self.pids = [process.pid for process in self._processes if process.pid]
        self.go()
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self._processes:
            if exc[0] is not None:
                process.kill()
            process.join(10)

    @property
    def samples(self) -> Samples:
        """Moments at which requests finished (`time.perf_counter`), and their latencies in seconds: (2, n)."""
        return np.hstack(self._samples)

    @property
    def ended(self) -> bool:
        """True if all generator processes are done."""
        return len(self._ends) == len(self._processes)

    def go(self) -> None:
        """Start sending.

        Raises:
            Stalled: If a process does not take part.
        """
        try:
            self._barrier.wait(_START_TIMEOUT)
        except threading.BrokenBarrierError:
            raise Stalled(f"a generator process did not start within {_START_TIMEOUT:.0f} s") from None

    def receive(self) -> None:
        """Read the reports that have come.

        Raises:
            Stalled: If a process has failed.
        """
        while not self._reports.empty():
            samples, sent, end = self._reports.get()
            self._samples.append(samples)
            self.sent += sent
            self._ends += [end] if end else []
        if codes := [process.exitcode for process in self._processes if process.exitcode]:
            raise Stalled(f"a generator process ended with {codes[0]}; see its message above")

    def finish(self) -> tuple[LoadTally, float]:
        """Stop sending, and wait for the requests in flight. Return the whole tally and the CPU seconds.

        Raises:
            Stalled: If a process fails, or does not stop in time.
        """
        self._stop.set()
        deadline = time.monotonic() + self._stop_timeout
        while not self.ended:
            if time.monotonic() > deadline:
                raise Stalled(f"a generator process did not stop within {self._stop_timeout:.0f} s")
            self.receive()
            time.sleep(0.02)
        tallies, cpu_seconds = zip(*self._ends, strict=True)
        return sum(tallies, LoadTally()), sum(cpu_seconds)


def run(endpoint: Endpoint, load: Load, references: Sequence[Array], reports: Any, barrier: Any, stop: Any) -> None:
    """Run a generator process: generate load from the second passing of the barrier until `stop` is set.

    Meanwhile it reports what `LoadRecorder.take` returns, and None; at the end the tally and the CPU seconds instead.
    """
    recorder = LoadRecorder(len(endpoint.records), load.requests, Checker(references), load.check_every)
    barrier.wait()
    barrier.wait()
    cpu_before = time.process_time()
    ended = threading.Event()

    def report() -> None:
        while not ended.wait(REPORT_EVERY):
            reports.put((*recorder.take(), None))
            if stop.is_set():
                recorder.stop()

    reporter = threading.Thread(target=report)
    reporter.start()
    try:
        _generate(endpoint, load, recorder)
    finally:
        ended.set()
        reporter.join()
    reports.put((*recorder.take(), (recorder.tally, time.process_time() - cpu_before)))


def _generate(endpoint: Endpoint, load: Load, recorder: LoadRecorder) -> None:
    is_sync = endpoint.kind == "redis" and load.client == "sync"
    if is_sync and load.mode == "pipelined":
        pipelined(endpoint, load.concurrency, recorder)
    elif is_sync and load.mode == "closed":
        _closed_sync(endpoint, load.concurrency, recorder)
    else:
        # With asyncio, `concurrency` callers and a pipeline of `concurrency` requests are the same.
        load_of_mode = _open if load.mode == "open" else _closed
        event_loop = import_module("uvloop" if find_spec("uvloop") else "asyncio")
        event_loop.run(load_of_mode(endpoint, load, recorder))


def _closed_sync(endpoint: Endpoint, callers: int, recorder: LoadRecorder) -> None:
    with InputQueue(url=endpoint.url, name=endpoint.job) as queue, ThreadPoolExecutor(callers) as pool:

        def call() -> None:
            while (taken := recorder.send()) is not None:
                name, variant = taken
                started = time.perf_counter()
                try:
                    result = queue.predict(endpoint.records[variant], timeout=endpoint.timeout)
                    recorder.answered(name, started, variant, lambda result=result: payload.numbers(result.outputs))  # type: ignore[misc]
                except ResultTimeout:
                    recorder.lost(name)
                except ServingError as error:
                    recorder.failed(name, error.code)

        for done in [pool.submit(call) for _ in range(callers)]:
            done.result()


async def _closed(endpoint: Endpoint, load: Load, recorder: LoadRecorder) -> None:
    async with aclosing(endpoint.open()) as target:

        async def call() -> None:
            while (taken := recorder.send()) is not None:
                await _ask(target, recorder, *taken, time.perf_counter())

        await asyncio.gather(*(call() for _ in range(load.concurrency)))


async def _open(endpoint: Endpoint, load: Load, recorder: LoadRecorder) -> None:
    begin = time.perf_counter()
    tasks: set[asyncio.Task[None]] = set()
    errors: list[BaseException] = []

    def ended(task: asyncio.Task[None]) -> None:
        tasks.discard(task)
        if error := task.exception():
            errors.append(error)

    async with aclosing(endpoint.open()) as target:
        for due in poisson_arrivals(load.rate, load.seed):
            # The latency of a request that leaves late counts from when it was due. Otherwise a slow server would be
            # asked less, and would look good.
            while recorder.wants_more and (pause := begin + due - time.perf_counter()) > 0:
                await asyncio.sleep(min(pause, REPORT_EVERY))
            if errors or (taken := recorder.send()) is None:
                break
            task = asyncio.create_task(_ask(target, recorder, *taken, begin + due))
            tasks.add(task)
            task.add_done_callback(ended)
            if taken[1] == 0:
                # A generator that is late never pauses; this lets it read answers.
                await asyncio.sleep(0)
        if tasks and not errors:
            await asyncio.wait(tasks)
    if errors:
        raise errors[0]


async def _ask(target: LoadTarget, recorder: LoadRecorder, name: Any, variant: int, started: float) -> None:
    try:
        answer = await target.ask(variant)
        recorder.answered(name, started, variant, lambda: target.read(answer))
    except Lost:
        recorder.lost(name)
    except Failed as error:
        recorder.failed(name, str(error))
