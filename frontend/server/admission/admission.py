"""Admission: API keys, requests a second, and instances in flight."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cluster_serving.frontend.errors import Overloaded, RateLimited, Unauthenticated
from cluster_serving.frontend.options import HttpOptions
from cluster_serving.frontend.server.admission.body_memory import BodyMemory
from cluster_serving.frontend.server.admission.keys import Keys
from cluster_serving.protocol.compat import timeout as time_limit


class Admission:
    """Admits the callers of a front end, over HTTP and gRPC; used by one event loop.

    Attributes:
        has_keys: True if callers need an API key.
        bodies: Memory for the bodies of their requests.
        acquire_token: Coroutine function as `acquire`, which it is in the first process; a worker asks that process.
    """

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self._keys = Keys(Path(options.api_keys_file)) if options.api_keys_file else None
        self.has_keys = self._keys is not None
        self.bodies = BodyMemory(options.body_memory_each)
        self.acquire_token: Callable[[str], Awaitable[float]] = self.acquire
        self._buckets: dict[str, TokenBucket] = {}

    def client(self, key: str, needs_key: bool = True) -> str:
        """Return the name of a caller's API key; empty for none. All callers without a name share one rate limit.

        Args:
            key: API key of the caller; empty if there is none.
            needs_key: False if the request is answered without a key, too.

        Raises:
            Unauthenticated: If the key is missing or unknown.
        """
        if self._keys is None or not (needs_key or key):
            return ""
        try:
            return self._keys.owner(key)
        except Unauthenticated:
            if needs_key:
                raise
            return ""

    async def wait_for_token(self, client: str) -> None:
        """Wait for a token of a caller, if there is a rate limit.

        Raises:
            RateLimited: If it would come too late.
        """
        if self._options.token_bucket_enabled and (wait := await self.acquire_token(client)):
            await asyncio.sleep(wait)

    async def acquire(self, client: str) -> float:
        """Acquire a token of a caller, by the name of its API key; return the seconds until it is valid.

        Raises:
            RateLimited: If the token would come too late; none is acquired.
        """
        if client not in self._buckets:
            options = self._options
            self._buckets[client] = TokenBucket(options.tokens_per_second, options.token_acquire_timeout / 1000)
        return self._buckets[client].take()


async def acquire_for_worker(admission: Admission, client: str) -> tuple[float, str]:
    """Acquire a token for another process; return the seconds to wait, and the refusal if there is one."""
    try:
        return await admission.acquire(client), ""
    except RateLimited as error:
        return error.retry_after, str(error)


def remote_acquire(ask: Callable[[str], Awaitable[Sequence[Any]]]) -> Callable[[str], Awaitable[float]]:
    """Return a function as `Admission.acquire`, for another process, which asks for `acquire_for_worker`."""

    async def acquire(client: str) -> float:
        wait, refusal = await ask(client)
        if refusal:
            raise RateLimited(refusal, wait)
        return float(wait)

    return acquire


class TokenBucket:
    """Grants a number of requests a second, and as many at once after a second of rest.

    Args:
        rate: Requests a second.
        longest_wait: Seconds that a request may wait for its token.
        clock: Function that returns the time in seconds; for tests.
    """

    def __init__(self, rate: float, longest_wait: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._longest_wait = longest_wait
        self._clock = clock
        self._burst = max(rate, 1.0)
        self._tokens = self._burst
        self._filled_at = clock()

    def take(self) -> float:
        """Acquire a token, and return the seconds to wait for it; 0 if there is one now.

        Raises:
            RateLimited: If the token would come too late; none is acquired.
        """
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        wait = max(0.0, (1 - self._tokens) / self._rate)
        if wait > self._longest_wait:
            raise RateLimited(f"more than {self._rate:g} requests a second (tokensPerSecond)", wait)
        self._tokens -= 1
        return wait


class ConcurrencyLimit:
    """Limits the number of instances in flight; further ones wait for a place.

    Args:
        most: Most instances in flight.
        most_waiting: Most instances that wait; None for as many.

    Attributes:
        most: As given.
        count: Number of instances in flight.
        waiting: Number of instances that wait.
    """

    def __init__(self, most: int, most_waiting: int | None = None) -> None:
        self.count = 0
        self.waiting = 0
        self.most = most
        self._most_waiting = most if most_waiting is None else most_waiting
        self._waiters: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def place(self, timeout: float) -> AsyncIterator[None]:
        """Hold a place; see `take`."""
        await self.take(timeout)
        try:
            yield
        finally:
            self.give()

    async def take(self, timeout: float) -> bool:
        """Take a place, which must be given back; return True if it took a while.

        Raises:
            Overloaded: If no place becomes free within `timeout` seconds, or too many instances wait already.
        """
        if self.count < self.most and not self._waiters:
            self.count += 1
            return False
        await self._wait(timeout)
        return True

    def give(self) -> None:
        """Give a place back, or to the first instance that waits."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.count -= 1

    async def _wait(self, timeout: float) -> None:
        state = f"{self.count} instances are in flight (parallelism) and {self.waiting} wait"
        if self.waiting >= self._most_waiting:
            raise Overloaded(f"{state}; no more are taken")
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self.waiting += 1
        try:
            async with time_limit(timeout):
                await waiter
        except (asyncio.TimeoutError, asyncio.CancelledError) as ended:
            if waiter.done() and not waiter.cancelled():
                # The place came at the same moment.
                self.give()
            if isinstance(ended, asyncio.CancelledError):
                raise
            raise Overloaded(f"{state}; none of them was answered within {timeout:g} s") from None
        finally:
            self.waiting -= 1
