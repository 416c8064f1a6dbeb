"""What PyFlink's runtime context does not offer in both execution modes."""

from __future__ import annotations

from pyflink.datastream import RuntimeContext


def subtask_index(context: RuntimeContext) -> int:
    """Index of this parallel instance, from 0.

    In thread mode the context's own method raises, because the Java method behind it moved to `getTaskInfo()`.
    """
    try:
        return int(context.get_index_of_this_subtask())
    except AttributeError:
        return int(context._runtime_context.getTaskInfo().getIndexOfThisSubtask())
