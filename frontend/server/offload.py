"""Offload of the work on large bodies, so that the event loop goes on with other requests."""

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from cluster_serving.frontend.errors import Overloaded

LARGE = 1 << 20
"""Cost from which on work is offloaded: about 5 ms, several times the cost of the way to a process and back."""

_PROCESSES = 2
_NICE = 5

T = TypeVar("T")


class Offload:
    """Does work in the event loop, in a thread or in a process, by its cost and kind; used by one event loop.

    A cost is a number of bytes that take 5 ns each. Bytes that take longer count more than once.
    """

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        # One thread: each further one would delay the event loop anew, whenever it asks for the GIL.
        self._thread = ThreadPoolExecutor(1, "offload")

    async def run(self, work: Callable[[], T], *, holding_gil: int = 0, sharing_gil: int = 0) -> T:
        """Do some work.

        Args:
            work: Function without arguments. A process can take a `functools.partial` of a module's function, whose
                arguments, result and errors can be pickled.
            holding_gil: Cost of single calls that hold the GIL until they return, such as reading or writing JSON, and
                of long loops. From `LARGE` on, a process does the work.
            sharing_gil: Cost of calls that release the GIL, and of short loops in Python. From `LARGE` on, a thread
                does the work.

        Raises:
            Overloaded: If the process was killed.
        """
        if holding_gil >= LARGE:
            return await self._in_process(work)
        if sharing_gil < LARGE:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        """End the processes and the thread; nobody waits for their work any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)
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
    """Make a process end with the front end, give way to it, and ignore the Ctrl-C that the terminal sends to both."""
    os.nice(_NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
