"""Clients that work steadily, whatever happens, and account for every request."""

import asyncio
import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from cluster_serving.client import AsyncInputQueue, InputQueue, OutputQueue, ServingError

TIMEOUT = 120.0
"""Seconds after which a request that was queued is stuck."""


def values(number):
    """Input of a request; every tenth is large enough for a file instead of Redis."""
    return np.full(3 if number % 10 else 9000, number, "f8")


@dataclass
class Ledger:
    """What became of the requests; the model of the job doubles its input, so an answer tells whose it is.

    Attributes:
        counts: Requests `accepted`, `answered`, `wrong` and `stuck`, and errors that clients saw by class.
        answered_at: When answers came.
    """

    counts: Counter = field(default_factory=Counter)
    answered_at: list[float] = field(default_factory=list)

    def check(self, number, answer):
        self.answered_at.append(time.monotonic())
        right = np.array_equal(answer, 2 * values(number))
        self.counts["answered" if right else "wrong"] += 1

    def longest_gap(self, since, until):
        """Seconds without any answer."""
        times = [since, *(t for t in self.answered_at if since < t < until), until]
        return max(later - sooner for sooner, later in itertools.pairwise(times))


class Load:
    """Some clients of one job: queued and collected, waited for, and by asyncio.

    Args:
        name: The job.
        port: Port of its Redis.
        rate: Requests per second of each client.
    """

    def __init__(self, name, port, rate=100):
        self._name, self._port, self._pause = name, port, 1 / rate
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._next = 0
        self.ledger = Ledger()
        clients = [self._queue_and_collect, self._queue_and_collect, self._predict, self._predict_async]
        # Daemons, so that a run that fails ends.
        self._threads = [threading.Thread(target=client, daemon=True) for client in clients]
        for thread in self._threads:
            thread.start()

    def stop(self):
        """Stop sending, and wait for everything that is still due."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        return self.ledger

    def _number(self):
        with self._lock:
            self._next += 1
            return self._next

    def _queue_and_collect(self):
        """Queues on one thread and collects on another, so that what is due piles up during an outage."""
        due = []
        collector = threading.Thread(target=self._collect, args=(due,), daemon=True)
        with InputQueue(port=self._port, name=self._name) as requests:
            collector.start()
            while not self._stopped.is_set():
                number = self._number()
                self._persist(requests.enqueue, f"r{number}", x=values(number))
                self.ledger.counts["accepted"] += 1
                due.append(number)
                time.sleep(self._pause)
        due.append(None)
        collector.join()

    def _collect(self, due):
        position = 0
        with OutputQueue(port=self._port, name=self._name) as results:
            while True:
                if position == len(due):
                    time.sleep(self._pause)
                elif (number := due[position]) is None:
                    return
                else:
                    position += 1
                    self._await(results, number)

    def _await(self, results, number):
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            try:
                self.ledger.check(number, results.query_and_delete(f"r{number}", timeout=10))
                return
            except ServingError as error:
                self.ledger.counts[type(error).__name__] += 1
        self.ledger.counts["stuck"] += 1

    def _predict(self):
        with InputQueue(port=self._port, name=self._name) as requests:
            while not self._stopped.is_set():
                number = self._number()
                answer = self._persist(requests.predict, {"x": values(number)}, timeout=10)
                self.ledger.counts["accepted"] += 1
                self.ledger.check(number, answer)
                time.sleep(self._pause)

    def _predict_async(self):
        asyncio.run(self._predict_many())

    async def _predict_many(self):
        async with AsyncInputQueue(port=self._port, name=self._name) as requests:
            while not self._stopped.is_set():
                await asyncio.gather(*(self._predict_one(requests) for _ in range(8)))
                await asyncio.sleep(8 * self._pause)

    async def _predict_one(self, requests):
        number = self._number()
        for _ in range(100):
            try:
                answer = await requests.predict({"x": values(number)}, timeout=10)
            except ServingError as error:
                self.ledger.counts[type(error).__name__] += 1
                await asyncio.sleep(0.2)
                continue
            self.ledger.counts["accepted"] += 1
            self.ledger.check(number, answer)
            return
        self.ledger.counts["stuck"] += 1

    def _persist(self, action, *arguments, **options):
        while True:
            try:
                return action(*arguments, **options)
            except ServingError as error:
                self.ledger.counts[type(error).__name__] += 1
                time.sleep(0.2)
