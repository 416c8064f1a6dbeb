"""What PyFlink's runtime context does not offer in both execution modes."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol

from pyflink.datastream import RuntimeContext


def subtask_index(context: RuntimeContext) -> int:
    """Index of this parallel instance, from 0.

    In thread mode the context's own method raises, because the Java method behind it moved to `getTaskInfo()`.
    """
    try:
        return int(context.get_index_of_this_subtask())
    except AttributeError:
        return int(context._runtime_context.getTaskInfo().getIndexOfThisSubtask())


def nothing() -> None:
    """What there is to close before a function is open."""


def closing(function: object, *actions: Callable[[], object]) -> Callable[[], object]:
    """Make what `close` of a function has to call.

    In thread mode PyFlink does not close the functions of a job that is cancelled or fails, it only lets go of them. So
    the actions are also carried out then; but once at most.

    Args:
        function: A function of the job, as it is opened.
        actions: What to do, in order; without references to the function, or nothing would ever let go of it.
    """
    stack = ExitStack()
    for action in reversed(actions):
        stack.callback(action)
    finalizer = weakref.finalize(function, stack.close)
    finalizer.atexit = False
    return finalizer


class Counter(Protocol):
    """Counts up."""

    def inc(self, n: int) -> None:
        """Add `n`."""


class _NoCounter:
    def inc(self, n: int) -> None:
        """Count nothing."""


def records_out(context: RuntimeContext) -> Counter:
    """Flink's own `numRecordsOut` of this task, to which users are sent for totals and throughput.

    Flink counts what crosses the exchange, which is chunks, and nothing at a sink; the difference to requests is added
    here. In process mode Python cannot reach the counter, and only the metric `requests` counts requests.
    """
    try:
        group = context._runtime_context.getMetricGroup()
    except AttributeError:
        return _NoCounter()
    counter: Counter = group.getTaskIOMetricGroup().getNumRecordsOutCounter()
    return counter
