"""Functions of Flink's runtime context that PyFlink does not offer in both execution modes."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol

from pyflink.datastream import RuntimeContext


def subtask_index(context: RuntimeContext) -> int:
    """Return the index of this parallel instance, from 0.

    In thread mode the context's own method raises, because the Java method behind it moved to `getTaskInfo()`.
    """
    try:
        return int(context.get_index_of_this_subtask())
    except AttributeError:
        return int(context._runtime_context.getTaskInfo().getIndexOfThisSubtask())


def do_nothing() -> None:
    """Do nothing: the `close` of a function that is not open."""


def make_close(function: object, *actions: Callable[[], object]) -> Callable[[], object]:
    """Return a callable for `close` of a Flink function; it carries out the actions in order, at most once.

    In thread mode PyFlink does not close the functions of a job that is cancelled or fails, but only drops them. The
    actions are then carried out when the function is collected.

    Args:
        function: A function of the job, while it is opened.
        actions: Callables without a reference to the function, which would otherwise never be collected.
    """
    stack = ExitStack()
    for action in reversed(actions):
        stack.callback(action)
    finalizer = weakref.finalize(function, stack.close)
    finalizer.atexit = False
    return finalizer


class Counter(Protocol):
    """A counter of Flink, or none."""

    def inc(self, n: int) -> None:
        """Add `n`."""


class _NoCounter:
    def inc(self, n: int) -> None:
        """Count nothing."""


def records_out(context: RuntimeContext) -> Counter:
    """Return Flink's counter `numRecordsOut` of this task, which the Flink UI shows as totals and throughput.

    Flink counts entry batches behind the source and nothing behind a sink; source and sink add the difference to the
    number of requests. In process mode Python cannot reach the counter, and only the metric `requests` counts requests.
    """
    try:
        group = context._runtime_context.getMetricGroup()
    except AttributeError:
        return _NoCounter()
    counter: Counter = group.getTaskIOMetricGroup().getNumRecordsOutCounter()
    return counter
