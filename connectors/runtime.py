"""What PyFlink's runtime context does not offer in both execution modes."""

from __future__ import annotations

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
