"""What the Flink functions of one slot of several models share: they meet here, as `connectors.slot.shared` has it."""

from __future__ import annotations

import threading
from weakref import WeakValueDictionary

from cluster_serving.connectors.slot.metrics import Metrics
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.job.hosting.metrics import OncePerName
from cluster_serving.job.hosting.models import HostedModels
from cluster_serving.job.hosting.serving import Serving


class Turn:
    """Tells the source of a slot that the window waits for its next turn.

    In process mode, too, Flink runs the operators of a slot in one Python process, each in a thread.

    Attributes:
        is_due: Set while the window waits.
        has_source: True if the source is in this process.
    """

    def __init__(self) -> None:
        self.is_due = threading.Event()
        self.has_source = False

    @classmethod
    def of(cls, generation: str, index: int) -> Turn:
        """Return the one of a slot in this process."""
        with _opening:
            found = _turns.get((generation, index))
            if found is None:
                found = _turns[generation, index] = cls()
            return found


class Table:
    """The models of a slot, and their queues; one attempt of Flink at the slot has it.

    Args:
        shared: What the slot of the job shares.
        end: File in which the process records its end, see `Attempt.end`.

    Attributes:
        models: The models; None before they are loaded.
        serving: Their queues; None before the window is open.
    """

    def __init__(self, shared: SharedSlot, end: str = "") -> None:
        self.shared = shared
        self.end = end
        self._metrics: OncePerName | None = None
        self.models: HostedModels | None = None
        self.serving: Serving | None = None

    def once(self, metrics: Metrics) -> OncePerName:
        """Return the metrics of all functions of the slot: Flink runs them as one operator, which takes a name once."""
        self._metrics = self._metrics or OncePerName(metrics)
        return self._metrics

    @classmethod
    def of(cls, generation: str, index: int, attempt: int, end: str) -> Table:
        """Return the table of an attempt at a slot in this process."""
        with _opening:
            found = _tables.get((generation, index, attempt))
            if found is None:
                found = _tables[generation, index, attempt] = cls(SharedSlot.of(generation, index), end)
            return found


_tables: WeakValueDictionary[tuple[str, int, int], Table] = WeakValueDictionary()
_turns: WeakValueDictionary[tuple[str, int], Turn] = WeakValueDictionary()
_opening = threading.Lock()
