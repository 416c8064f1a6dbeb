"""Offload of the work on large bodies, so that the event loop goes on with other requests."""

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from cluster_serving.frontend.errors import Overloaded

LARGE = 1 << 20
"""Bytes from which on work is offloaded: 10 ms of parsing, ten times the cost of the way to a process and back."""

_PROCESSES = 2

T = TypeVar("T")


class Offload:
    """Does work in the event loop, in a thread or in a process, by its size and kind; used by one event loop."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def run(self, work: Callable[[], T], *, holding_gil: int = 0, sharing_gil: int = 0) -> T:
        """Do some work.

        Args:
            work: Function without arguments. A process can take a `functools.partial` of a module's function, whose
                arguments, result and errors can be pickled.
            holding_gil: Bytes processed by single calls that hold the GIL until they return, such as reading or
                writing JSON. From `LARGE` on, a process does the work.
            sharing_gil: Bytes processed by loops in Python, or by calls that release the GIL. From `LARGE` on, a thread
                does the work.

        Raises:
            Overloaded: If the process was killed.
        """
        if holding_gil >= LARGE:
            return await self._in_process(work)
        return await asyncio.to_thread(work) if sharing_gil >= LARGE else work()

    async def close(self) -> None:
        """End the processes; nobody waits for their work any more."""
        if self._pool is not None:
            processes = list(self._pool._processes.values())
            self._pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()

    async def _in_process(self, work: Callable[[], T]) -> T:
        if self._pool is None:
            # Not forked: this process has threads.
            self._pool = ProcessPoolExecutor(_PROCESSES, multiprocessing.get_context("spawn"), _begin)
        pool = self._pool
        try:
            return await asyncio.wrap_future(pool.submit(work))
        except BrokenProcessPool:
            if self._pool is pool:
                self._pool = None
            raise Overloaded("the process that works on large bodies was killed") from None


def _begin() -> None:
    """Make a process end with the front end, and ignore the Ctrl-C that the terminal sends to both."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
