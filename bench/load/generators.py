"""The generator processes of a measurement, seen from their parent."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from cluster_serving.bench.load import generator
from cluster_serving.bench.load.generator import Load
from cluster_serving.bench.load.stats import Samples as Times
from cluster_serving.bench.load.tally import Tally
from cluster_serving.bench.load.target import Where
from cluster_serving.protocol.inputs import Array

_START_TIMEOUT = 60.0


class Stalled(Exception):
    """A generator process did not do its part; the text says which."""


def shares(load: Load, processes: int) -> list[Load]:
    """Divide a load among processes; none is without work."""
    count = max(1, min(processes, load.concurrency if load.mode != "open" else processes))
    result = []
    for index in range(count):
        requests = load.requests
        result.append(
            replace(
                load,
                concurrency=load.concurrency // count + (index < load.concurrency % count),
                rate=load.rate / count,
                requests=None if requests is None else requests // count + (index < requests % count),
                seed=load.seed + index,
            )
        )
    return result


class Generators:
    """The generator processes."""

    def __init__(self, where: Where, loads: Sequence[Load], known: Sequence[Array]) -> None:
        context = multiprocessing.get_context("spawn")
        self._patience = where.timeout + _START_TIMEOUT
        self._pairs = []
        for load in loads:
            mine, theirs = context.Pipe()
            process = context.Process(target=generator.run, args=(where, load, known, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pairs.append((process, mine))
        self.finished: list[Times] = []
        self.seconds: list[Times] = []
        self._sent = [0] * len(self._pairs)
        self._ends: dict[int, tuple[Tally, float]] = {}

    def __enter__(self) -> Generators:
        for _, pipe in self._pairs:
            if not pipe.poll(_START_TIMEOUT):
                raise Stalled(f"a generator process did not start within {_START_TIMEOUT:.0f} s")
            pipe.recv()
        return self

    def __exit__(self, *exc: object) -> None:
        for process, pipe in self._pairs:
            pipe.close()
            if process.is_alive() and exc[0] is not None:
                process.kill()
            process.join(10)

    @property
    def pids(self) -> list[int]:
        """Of the generator processes."""
        return [process.pid for process, _ in self._pairs if process.pid]

    @property
    def sent(self) -> int:
        """Requests sent so far."""
        return sum(self._sent)

    @property
    def ended(self) -> bool:
        """Whether all of them are done."""
        return len(self._ends) == len(self._pairs)

    def go(self) -> None:
        """Let them begin."""
        for _, pipe in self._pairs:
            pipe.send("go")

    def receive(self) -> None:
        """Take what has been reported."""
        for index, (process, pipe) in enumerate(self._pairs):
            while index not in self._ends and pipe.poll():
                try:
                    kind, what = pipe.recv()
                except EOFError:
                    process.join(5)
                    raise Stalled(f"a generator process ended with {process.exitcode}; see its message above") from None
                if kind == "end":
                    self._ends[index] = what
                else:
                    finished, seconds, self._sent[index] = what
                    self.finished.append(finished)
                    self.seconds.append(seconds)

    def finish(self) -> tuple[Tally, float]:
        """Stop sending, and wait for what is on its way."""
        for index, (_, pipe) in enumerate(self._pairs):
            if index not in self._ends:
                with suppress(OSError):
                    pipe.send("stop")
        deadline = time.monotonic() + self._patience
        while not self.ended and time.monotonic() < deadline:
            self.receive()
            time.sleep(0.02)
        if not self.ended:
            raise Stalled(f"a generator process did not stop within {self._patience:.0f} s")
        tally = Tally()
        for part, _ in self._ends.values():
            tally.add(part)
        return tally, sum(cpu for _, cpu in self._ends.values())
