"""Work on large bodies: where it keeps nobody from being answered."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import ParamSpec, TypeVar

from cluster_serving.frontend.errors import Overloaded

LARGE = 1 << 20
"""Bytes from which on work is done elsewhere: 10 ms of parsing, which is ten times what a way to a process costs."""

_PROCESSES = 2

P = ParamSpec("P")
T = TypeVar("T")


class Offload:
    """Calls functions elsewhere than in the event loop, if what they work on is large; used by one event loop."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def to_process(self, size: int, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that computes in one go: reading and writing JSON, say, holds Python's lock until it is done.

        Args:
            size: Bytes that it works on.
            function: A function of a module.
            args: Its arguments, which can be pickled, as what it returns and raises.
            kwargs: Likewise.

        Raises:
            Overloaded: The process was killed.
        """
        if size < LARGE:
            return function(*args, **kwargs)
        if self._pool is None:
            # Not forked: this process has threads.
            self._pool = ProcessPoolExecutor(_PROCESSES, multiprocessing.get_context("spawn"), _begin)
        pool = self._pool
        try:
            return await asyncio.wrap_future(pool.submit(function, *args, **kwargs))
        except BrokenProcessPool:
            if self._pool is pool:
                self._pool = None
            raise Overloaded("the process that works on large bodies was killed") from None

    async def to_thread(self, size: int, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that lets other threads run, as loops of Python do.

        Args:
            size: Bytes that it works on.
            function: Any function.
            args: Its arguments.
            kwargs: Likewise.
        """
        if size < LARGE:
            return function(*args, **kwargs)
        return await asyncio.to_thread(function, *args, **kwargs)

    async def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """Make a process end with the front end, and not by the Ctrl-C that it gets too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
