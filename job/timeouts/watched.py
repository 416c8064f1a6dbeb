"""Timeout of model calls (`inferenceTimeout`): each copy of the model computes in a thread that can be abandoned.

Nothing can stop native code that does not return, and in thread mode the process is Flink's TaskManager. So the caller
only waits for a result. If none comes in time, thread and copy of the model are abandoned, and the next call loads
another copy. An abandoned call still uses a core and its memory, so after a few of them the process has to be replaced.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from cluster_serving.job.copies import Closable, Copies, NotComputed
from cluster_serving.protocol.errors import InferenceTimeout

T = TypeVar("T")
M = TypeVar("M", bound=Closable)

log = logging.getLogger(__name__)

MAX_HUNG = 6
"""Number of calls that hang at the same time, in all slots of a process, at which the process has to end.

A request that hangs leaves two of them, unless it was alone in its batch.
"""

_RELOAD_TIMEOUT = 600.0
# A call takes unusually long after this many times its usual duration, and not before this many seconds.
_TIMES_EXPECTED = 10.0
_SHORTEST_LIMIT = 1.0
# Weight of the latest call in the usual duration.
_WEIGHT = 0.1

_hung: list[threading.Thread] = []


class Watched(Copies[M]):
    """A copy of a model, or of a handler, whose calls raise `InferenceTimeout` instead of hanging.

    Args:
        load: Loads a copy and warms it up.
        timeout: Longest time of one call, in seconds.
    """

    in_place = False

    def __init__(self, load: Callable[[], M], timeout: float) -> None:
        self._load = load
        self._timeout = timeout
        self._usual = 0.0
        self._copy: _Copy[M] | None = _Copy(load)
        self._spare: _Copy[M] | None = None
        self.loaded = self._copy.model()

    def call(self, function: Callable[[M], T], requests: int = 1, usual: bool = True) -> T:
        """Call a function with the copy, in the thread of the copy; raise `NotComputed` if too many calls hang.

        A batch of several `requests` is given up early if it takes unusually long: the caller then tries each of them
        alone, with the whole timeout. Another copy is loaded meanwhile. A call that is not `usual` takes any time up to
        the timeout.
        """
        if self.exhausted:
            raise NotComputed("not computed")
        copy = self._copy or self._reload()
        expected = self._usual * requests
        hurries = usual and expected
        limit = min(self._timeout, max(_SHORTEST_LIMIT, _TIMES_EXPECTED * expected)) if hurries else self._timeout
        began = time.monotonic()
        call = copy.submit(lambda: function(self.loaded))
        try:
            try:
                result = copy.result(call, limit)
            except _Hangs:
                if requests > 1 or limit == self._timeout:
                    raise
                self._spare = self._spare or _Copy(self._load)
                result = copy.result(call, self._timeout - limit)
        except _Hangs as error:
            self._abandon(copy, time.monotonic() - began, requests, str(error))
            message = f"the model has not answered within {self._timeout:g} s (inferenceTimeout)"
            raise InferenceTimeout(message) from None
        finally:
            if self._copy is copy and self._spare is not None:
                self._spare.leave()
                self._spare = None
        if usual:
            seconds = (time.monotonic() - began) / requests
            self._usual += (seconds - self._usual) * (_WEIGHT if expected else 1)
        return result

    def close(self) -> None:
        """Free the model, but not the copies that hang."""
        for copy in (self._copy, self._spare):
            if copy is not None:
                copy.leave()

    def _abandon(self, copy: _Copy[M], seconds: float, requests: int, place: str) -> None:
        copy.leave()
        self._copy = None
        _hung[:] = [thread for thread in _hung if thread.is_alive()] + [copy.thread]
        self.exhausted = len(_hung) >= MAX_HUNG
        log.warning(
            "the model has not answered within %.1f s for a batch of %d requests; %d calls hang in this process. It "
            "hangs at:\n%s",
            seconds,
            requests,
            len(_hung),
            place,
        )

    def _reload(self) -> _Copy[M]:
        copy, self._spare = self._spare or _Copy(self._load), None
        try:
            self.loaded = copy.model(_RELOAD_TIMEOUT)
        except Exception as error:
            # A new process reports the error where users look for it: at the start of the job.
            log.warning("the model cannot be loaded again: %s", error)
            self.exhausted = True
            raise NotComputed("not computed") from error
        self._copy = copy
        return copy


class _Hangs(Exception):
    """A call has not returned; the text is the stack of its thread."""


class _Copy(Generic[M]):
    """A copy of the model, and its thread; engines may tie their state to the thread that set it up."""

    def __init__(self, load: Callable[[], M]) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        # Without daemon, the process would wait at its end for a call that hangs.
        self.thread = threading.Thread(target=self._serve, name="model", daemon=True)
        self.thread.start()
        self._loading = self.submit(load)

    def model(self, timeout: float | None = None) -> M:
        """Return the model once it is loaded; if that fails, end the thread."""
        try:
            return self.result(self._loading, timeout)
        except BaseException:
            self.leave()
            raise

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Call a function in the thread, after those before it."""
        future: Future[T] = Future()
        self._calls.put((function, future))
        return future

    def result(self, future: Future[T], timeout: float | None = None) -> T:
        """Return the result of a call; raise its exception, or `_Hangs` after the timeout in seconds."""
        try:
            return future.result(timeout)
        except futures.TimeoutError:  # the built-in TimeoutError only from Python 3.11 on
            if future.done():
                return future.result()
            frame = sys._current_frames().get(self.thread.ident or 0)
            raise _Hangs("".join(traceback.format_stack(frame))) from None

    def leave(self) -> None:
        """Free the model and let the thread end, once its current call returns."""
        self.submit(lambda: self._loading.result().close())
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            function, future = call
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
            # Without this line, the last batch would stay in memory until the next one comes.
            del call, function, future
