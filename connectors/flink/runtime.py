"""Functions of Flink's runtime context that PyFlink does not offer in both execution modes."""

import weakref
from collections.abc import Callable
from contextlib import ExitStack

from pyflink.datastream import RuntimeContext


def subtask_index(context: RuntimeContext) -> int:
    """Return the index of this parallel instance, from 0."""
    return _number(context, "get_index_of_this_subtask", "getIndexOfThisSubtask")


def attempt_number(context: RuntimeContext) -> int:
    """Return how often Flink has started this instance again after a failure."""
    return _number(context, "get_attempt_number", "getAttemptNumber")


def subtask_count(context: RuntimeContext) -> int:
    """Return the number of parallel instances, which may be lower than the job asks for."""
    return _number(context, "get_number_of_parallel_subtasks", "getNumberOfParallelSubtasks")


def _number(context: RuntimeContext, name: str, java_name: str) -> int:
    """Return what a method of the context gives; in thread mode, which misses it, what `getTaskInfo()` does."""
    try:
        return int(getattr(context, name)())
    except AttributeError:
        return int(getattr(context._runtime_context.getTaskInfo(), java_name)())


def cancellation() -> Callable[[], bool]:
    """Return a callable that tells whether Flink cancels the task of this thread; in process mode it never does."""
    try:
        from pemja import findClass  # type: ignore[import-untyped]
    except ImportError:
        return lambda: False
    # Flink interrupts the thread of a task that it cancels, which Python does not notice.
    is_interrupted: Callable[[], bool] = findClass("java.lang.Thread").currentThread().isInterrupted
    return is_interrupted


class SelfClosing:
    """Mixin for Flink functions that release what they hold, at most once.

    In thread mode PyFlink does not close the functions of a job that is cancelled or fails, but only drops them. The
    function is then closed when it is collected.
    """

    _finalizer: weakref.finalize | None = None  # type: ignore[type-arg]

    def close_with(self, *actions: Callable[[], object]) -> None:
        """Set the actions of `close`, in order; call it once, in `open`.

        The actions must not refer to the function, which would otherwise never be collected.
        """
        stack = ExitStack()
        for action in reversed(actions):
            stack.callback(action)
        self._finalizer = weakref.finalize(self, stack.close)
        self._finalizer.atexit = False

    def close(self) -> None:
        """Release what the function holds."""
        if self._finalizer is not None:
            self._finalizer()


def count_records_out(context: RuntimeContext) -> Callable[[int], object]:
    """Return a callable that adds to Flink's counter `numRecordsOut` of this task.

    The Flink UI shows this counter as totals and throughput. Flink counts entry batches behind the source and nothing
    behind a sink; source and sink add the difference to the number of requests. In process mode Python cannot reach the
    counter, and only the metric `requests` counts requests.
    """
    try:
        group = context._runtime_context.getMetricGroup()
    except AttributeError:
        return lambda count: None
    add: Callable[[int], object] = group.getTaskIOMetricGroup().getNumRecordsOutCounter().inc
    return add
