"""Periodic work: what many parts of a process do at regular times, in one thread."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

_CLOSE_TIMEOUT_S = 2.0
_SHARE, _LONGEST_PAUSE_S = 0.01, 5.0

log = logging.getLogger(__name__)


class Periodic(ABC):
    """Work of one part of a process, which begins, goes on at regular times, and ends in the same thread.

    It shares the thread with all work of the same kind and place: a process that serves fifty models has fifty such
    parts, and fifty threads that wake once a second take a hundredth of a core.

    Work that raises an exception is logged, and ends.
    """

    def begin_periodic(self, kind: str, place: str, interval_s: float) -> None:
        """Begin with the work.

        Args:
            kind: Kind of the work, which is the name of the thread.
            place: Where the work leads to. Work for one place waits while the place does not answer.
            interval_s: Seconds from one time to the next.
        """
        self._thread: _Thread | None = _Thread.of((kind, place), interval_s, self)

    def end_periodic(self) -> None:
        """End the work, unless that takes longer than 2 s."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.end(self)

    def begin(self) -> bool:
        """Begin: called once, before all else; return False if there is nothing to do."""
        return True

    @abstractmethod
    def work(self) -> bool:
        """Do what is due; return False if the place does not answer, so that the others need not wait for it too."""

    @abstractmethod
    def end(self) -> None:
        """Do what is left: called once, after all else."""


def pause_after(used_s: float, interval_s: float) -> float:
    """Return the seconds until the next time, after work that has used some seconds of a core.

    All work of a thread takes a hundredth of a core, unless it would come less often than every 5 s. Redis alone takes
    0.4 ms to add the figures of a busy model.
    """
    return max(interval_s, min(used_s / _SHARE, _LONGEST_PAUSE_S))


class _Thread:
    """A thread that starts with the first work of a kind and place, and ends with the last."""

    def __init__(self, key: tuple[str, str], interval_s: float) -> None:
        self._key = key
        self._interval_s = interval_s
        self._new: list[Periodic] = []
        self._works: dict[Periodic, None] = {}
        self._ending: dict[Periodic, threading.Event] = {}
        self._changed = threading.Event()
        self._is_late = False

    @classmethod
    def of(cls, key: tuple[str, str], interval_s: float, work: Periodic) -> _Thread:
        """Return the thread of a kind and place, which has the work from now on."""
        with _opening:
            found = _threads.get(key)
            if found is None:
                found = _threads[key] = cls(key, interval_s)
                threading.Thread(target=found._run, name=key[0], daemon=True).start()
            found._new.append(work)
            found._changed.set()
            return found

    def end(self, work: Periodic) -> None:
        """Let the work end, and wait for that."""
        ended = threading.Event()
        with _opening:
            self._ending[work] = ended
            self._changed.set()
        # Fifty works of a place that does not answer wait as long as one.
        if not ended.wait(0 if self._is_late else _CLOSE_TIMEOUT_S):
            self._is_late = True

    def _run(self) -> None:
        due = time.monotonic() + self._interval_s
        while True:
            self._changed.wait(max(0.0, due - time.monotonic()))
            with _opening:
                self._changed.clear()
                new, self._new = self._new, []
                ending, self._ending = self._ending, {}
            for work in new:
                self._works[work] = None
                if not self._do(work, work.begin):
                    self._works.pop(work, None)
            for work, ended in ending.items():
                if work in self._works:
                    self._do(work, work.end)
                    self._works.pop(work, None)
                self._is_late = False
                ended.set()
            if time.monotonic() >= due:
                began = time.thread_time()
                self._work_all()
                due = time.monotonic() + pause_after(time.thread_time() - began, self._interval_s)
            with _opening:
                if not (self._works or self._new or self._ending):
                    del _threads[self._key]
                    return

    def _work_all(self) -> None:
        for work in list(self._works):
            if self._do(work, work.work) is False:
                # It is the last one next time: the others may write to another server, which answers.
                if self._works.pop(work, work) is None:
                    self._works[work] = None
                return

    def _do(self, work: Periodic, step: Callable[[], bool | None]) -> bool | None:
        try:
            return step()
        except Exception:
            log.exception("%s: it ends", self._key[0])
            self._works.pop(work, None)
            return None


_threads: dict[tuple[str, str], _Thread] = {}
_opening = threading.Lock()
