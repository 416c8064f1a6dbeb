"""What is left to do for iterators that were dropped, done in a thread of its own.

Python may collect an iterator at any time and in any thread: also in one that is in the middle of a call of Redis, and
so holds the lock of the connections that the clean-up would wait for.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

from redis.exceptions import RedisError

_EXIT_S = 5.0
"""Seconds for which the end of the program waits for what is left to do."""

# Its `put` may be called while Python collects, even in the middle of another `put`.
Tasks = SimpleQueue["Callable[[], object] | None"]


class Dropped:
    """A thread of this process for what is left to do; after a fork, the child begins with a thread of its own."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._process = 0
        self._tasks: Tasks = SimpleQueue()

    def prepare(self) -> None:
        """Start the thread, unless it runs. Collecting must start none, as another start may be in progress."""
        with self._starting:
            if self._process == os.getpid():
                return
            self._tasks = SimpleQueue()
            thread = threading.Thread(target=_run, args=(self._tasks,), name="cluster-serving dropped", daemon=True)
            thread.start()
            self._process = os.getpid()
        atexit.register(_end, self._tasks, thread, self._process)

    def add(self, task: Callable[[], object]) -> None:
        """Do something soon, but for errors of Redis; `prepare` was called before."""
        self._tasks.put(task)


def _run(tasks: Tasks) -> None:
    while (task := tasks.get()) is not None:
        with suppress(RedisError, OSError):
            task()


def _end(tasks: Tasks, thread: threading.Thread, process: int) -> None:
    if os.getpid() == process:
        tasks.put(None)
        thread.join(_EXIT_S)


DROPPED = Dropped()
