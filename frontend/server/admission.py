"""Who may send how much: instances in flight, and requests a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from cluster_serving.frontend.errors import Overloaded, RateLimited


class ConcurrencyLimit:
    """Limits how many instances are in flight; further ones wait for a place.

    Args:
        most: How many may be in flight, and how many more may wait.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.count = 0
        self.waiting = 0
        self._places = asyncio.Semaphore(most)

    @asynccontextmanager
    async def place(self, timeout: float) -> AsyncIterator[None]:
        """Hold a place.

        Args:
            timeout: Seconds to wait for one.

        Raises:
            Overloaded: None became free in time, or too many wait already.
        """
        if self._places.locked():
            await self._wait(timeout)
        else:
            await self._places.acquire()
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1
            self._places.release()

    async def _wait(self, timeout: float) -> None:
        state = f"{self.count} instances are in flight (parallelism) and {self.waiting} wait"
        if self.waiting >= self.most:
            raise Overloaded(f"{state}; no more are taken")
        self.waiting += 1
        try:
            async with asyncio.timeout(timeout):
                await self._places.acquire()
        except TimeoutError:
            raise Overloaded(f"{state}; none of them was answered within {timeout:g} s") from None
        finally:
            self.waiting -= 1


class TokenBucket:
    """Grants a number of requests a second, and as many at once after a second of rest.

    Args:
        rate: Requests a second.
        longest_wait: Seconds that a request may wait for its turn.
        clock: Seconds; for tests.
    """

    def __init__(self, rate: float, longest_wait: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._longest_wait = longest_wait
        self._clock = clock
        self._burst = max(rate, 1.0)
        self._tokens = self._burst
        self._filled_at = clock()

    def take(self) -> float:
        """Take a turn.

        Returns:
            Seconds to wait until it has come; 0 for at once.

        Raises:
            RateLimited: It would come too late; none was taken.
        """
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        wait = max(0.0, (1 - self._tokens) / self._rate)
        if wait > self._longest_wait:
            raise RateLimited(f"more than {self._rate:g} requests a second (tokensPerSecond)", wait)
        self._tokens -= 1
        return wait
