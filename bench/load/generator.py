"""A generator process: sends requests in one of three ways and reports to its parent."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from cluster_serving.bench.load import payload
from cluster_serving.bench.load.check import Checker
from cluster_serving.bench.load.pipelined import pipelined
from cluster_serving.bench.load.recorder import Recorder
from cluster_serving.bench.load.stats import poisson_arrivals
from cluster_serving.bench.load.target import Failed, Lost, Target, Where, open_target
from cluster_serving.client import InputQueue
from cluster_serving.protocol.errors import ResultTimeout, ServingError
from cluster_serving.protocol.inputs import Array

REPORT_EVERY = 0.1
"""Seconds between two reports to the parent."""


@dataclass(frozen=True)
class Load:
    """What one generator process does.

    Attributes:
        mode: `closed` (each of `concurrency` callers waits for its answer before it asks again), `open` (requests leave
            at random times, whether answers have come or not) or `pipelined` (as fast as possible with `concurrency`
            requests on their way).
        client: `sync` or `async`, of the native client; HTTP is asyncio throughout.
        concurrency: See mode.
        rate: Requests per second of `open`.
        requests: Most requests to send; None: until told to stop.
        seed: Of the arrival times.
        check_every: One answer in so many is checked.
    """

    mode: str
    client: str = "async"
    concurrency: int = 1
    rate: float = 0.0
    requests: int | None = None
    seed: int = 0
    check_every: int = 1


def run(where: Where, load: Load, references: Sequence[Array], connection: Connection) -> None:
    """Body of the process.

    Says `("ready", None)`, waits for any message, generates load until another message comes, and sends
    `("samples", …)` (see `Recorder.take`) again and again and `("end", (tally, CPU seconds))`.
    """
    checker = Checker(references)
    recorder = Recorder(
        len(where.records), load.requests, checker if checker.is_possible else None, max(1, load.check_every)
    )
    connection.send(("ready", None))
    connection.recv()
    spent = time.process_time()
    ended = threading.Event()
    reporter = threading.Thread(target=_report, args=(recorder, connection, ended))
    reporter.start()
    try:
        _driver(where, load)(where, load, recorder)
    finally:
        ended.set()
        reporter.join()
    connection.send(("samples", recorder.take()))
    connection.send(("end", (recorder.tally, time.process_time() - spent)))


def _driver(where: Where, load: Load) -> Callable[[Where, Load, Recorder], None]:
    if where.kind == "redis" and load.client == "sync":
        if load.mode == "pipelined":
            return pipelined
        if load.mode == "closed":
            return _closed_sync
    # With asyncio, as fast as possible with n on their way and n callers are the same.
    return _open if load.mode == "open" else _closed


def _report(recorder: Recorder, connection: Connection, ended: threading.Event) -> None:
    while not ended.wait(REPORT_EVERY):
        connection.send(("samples", recorder.take()))
        if connection.poll():
            connection.recv()
            recorder.stop()


def _closed_sync(where: Where, load: Load, recorder: Recorder) -> None:
    with (
        InputQueue(url=where.url, name=where.job) as queue,
        ThreadPoolExecutor(load.concurrency) as pool,
    ):

        def caller() -> None:
            while (taken := recorder.send()) is not None:
                name, variant = taken
                started = time.perf_counter()
                try:
                    result = queue.predict(where.records[variant], timeout=where.timeout)
                    recorder.answered(name, started, variant, lambda result=result: payload.numbers(result))  # type: ignore[misc]
                except ResultTimeout:
                    recorder.lost(name)
                except ServingError as error:
                    recorder.failed(name, error.code)

        for done in [pool.submit(caller) for _ in range(load.concurrency)]:
            done.result()


def _closed(where: Where, load: Load, recorder: Recorder) -> None:
    async def main() -> None:
        target = open_target(where)

        async def caller() -> None:
            while (taken := recorder.send()) is not None:
                await _once(target, recorder, *taken, time.perf_counter())

        async with asyncio.TaskGroup() as group:
            for _ in range(load.concurrency):
                group.create_task(caller())
        await target.close()

    _run(main)


def _open(where: Where, load: Load, recorder: Recorder) -> None:
    async def main() -> None:
        target = open_target(where)
        begin = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for due in poisson_arrivals(load.rate, load.seed):
                # Of a request that leaves late, because the generator or the server could not keep up, the latency
                # counts from when it was due: otherwise a slow server would be asked less, and look good.
                while recorder.wants_more and (pause := begin + due - time.perf_counter()) > 0:
                    await asyncio.sleep(min(pause, REPORT_EVERY))
                if (taken := recorder.send()) is None:
                    break
                group.create_task(_once(target, recorder, *taken, begin + due))
                if taken[1] == 0:
                    # A generator that is behind never pauses; answers come in here.
                    await asyncio.sleep(0)
        await target.close()

    _run(main)


async def _once(target: Target, recorder: Recorder, name: Any, variant: int, started: float) -> None:
    try:
        answer = await target.ask(variant)
        recorder.answered(name, started, variant, lambda: target.read(answer))
    except Lost:
        recorder.lost(name)
    except Failed as error:
        recorder.failed(name, str(error))


def _run(main: Callable[[], Any]) -> None:
    if importlib.util.find_spec("uvloop"):
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    else:
        asyncio.run(main())
