"""Timeout of model calls (`inferenceTimeout`): each copy of the model computes in a thread that can be abandoned.

Nothing can stop native code that does not return, and in thread mode the process is Flink's TaskManager. So the caller
only waits for a result. If none comes in time, thread and copy of the model are abandoned, and the next call loads
another copy. An abandoned call still uses a core and its memory, so after a few of them the process has to be replaced.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from cluster_serving.job.models.base import Model
from cluster_serving.protocol.errors import InferenceTimeout
from cluster_serving.protocol.inputs import Array

T = TypeVar("T")

log = logging.getLogger(__name__)

MAX_HUNG = 3
"""Number of calls that hang at the same time, in all slots of a process, at which the process has to end."""

_RELOAD_PATIENCE = 600.0

_hung: list[threading.Thread] = []


class NotComputed(InferenceTimeout):
    """A batch was not tried, because the process is about to be replaced; no client gets this error."""


class WatchedModel(Model):
    """A model that raises `InferenceTimeout` instead of hanging.

    Args:
        load: Loads a copy of the model and warms it up.
        timeout: Longest time of one call, in seconds.
    """

    def __init__(self, load: Callable[[], Model], timeout: float) -> None:
        self._load = load
        self._timeout = timeout
        self._copy: _Copy | None = _Copy()
        self._model = self._copy.load(load)
        self.engine, self.layout, self.fixed_batch = self._model.engine, self._model.layout, self._model.fixed_batch
        self.inputs, self.outputs = self._model.inputs, self._model.outputs
        self.exhausted = False
        """True if this process computes nothing any more, and has to end once it has written its answers."""

    def predict(self, inputs: Sequence[Array]) -> list[Array]:
        """See `Model.predict`; raise `NotComputed` if too many calls hang."""
        if self.exhausted:
            raise NotComputed("not computed")
        copy = self._copy or self._reload()
        try:
            outputs = copy.run(lambda: self._model.predict(inputs), self._timeout)
        except _Hangs as error:
            self._abandon(copy, len(inputs[0]), str(error))
            message = f"the model has not answered within {self._timeout:g} s (inferenceTimeout)"
            raise InferenceTimeout(message) from None
        self.outputs = self._model.outputs
        return outputs

    def close(self) -> None:
        """Free the model, but not the copies that hang."""
        if self._copy is not None:
            self._copy.leave(self._model.close)

    def _run(self, inputs: Sequence[Array]) -> list[Array]:
        return self.predict(inputs)

    def _abandon(self, copy: _Copy, batch: int, place: str) -> None:
        copy.leave(self._model.close)
        self._copy = None
        _hung[:] = [thread for thread in _hung if thread.is_alive()] + [copy.thread]
        self.exhausted = len(_hung) >= MAX_HUNG
        log.warning(
            "the model has not answered within %g s for a batch of %d; %d calls hang in this process. It hangs at:\n%s",
            self._timeout,
            batch,
            len(_hung),
            place,
        )

    def _reload(self) -> _Copy:
        copy = _Copy()
        try:
            self._model = copy.load(self._load, _RELOAD_PATIENCE)
        except Exception as error:
            # A new process reports the error where users look for it: at the start of the job.
            log.warning("the model cannot be loaded again: %s", error)
            self.exhausted = True
            raise NotComputed("not computed") from error
        self._copy = copy
        return copy


class _Hangs(Exception):
    """A call has not returned; the text is the stack of its thread."""


class _Copy:
    """Thread of one copy of the model; engines may tie their state to the thread that set it up."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        # Without daemon, the process would wait at its end for a call that hangs.
        self.thread = threading.Thread(target=self._serve, name="model", daemon=True)
        self.thread.start()

    def run(self, function: Callable[[], T], timeout: float | None = None) -> T:
        """Call a function in the thread; raise its exception, or `_Hangs` after the timeout in seconds."""
        future: Future[T] = Future()
        self._calls.put((function, future))
        try:
            return future.result(timeout)
        except futures.TimeoutError:  # the built-in TimeoutError only from Python 3.11 on
            if future.done():
                return future.result()
            frame = sys._current_frames().get(self.thread.ident or 0)
            raise _Hangs("".join(traceback.format_stack(frame))) from None

    def load(self, function: Callable[[], T], timeout: float | None = None) -> T:
        """Load the model with `run`; if that fails, end the thread."""
        try:
            return self.run(function, timeout)
        except BaseException:
            self.leave(lambda: None)
            raise

    def leave(self, last: Callable[[], None]) -> None:
        """Let the thread end once its current call returns, after a last function."""
        self._calls.put((last, Future()))
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
