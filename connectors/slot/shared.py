"""What the Flink functions of one slot share in a process: the registry in which they find each other.

Flink makes each function from bytes, so functions can meet by the name of their slot alone. They open in any order, and
those of a dropped attempt are closed only when they are collected. So the parts of an attempt meet by its
`SlotFlowControl`, whose id travels with the requests.
"""

from __future__ import annotations

import threading
import weakref
from weakref import WeakValueDictionary

from cluster_serving.connectors.slot.flow_control import SlotFlowControl, Surplus
from cluster_serving.connectors.slot.ticks import Ticks
from cluster_serving.protocol.figures.counts import Counts


class SharedSlot:
    """What the functions of a slot share; it refers to no function, and lives for as long as one of them refers to it.

    Attributes:
        index: Index of the slot, from 0.
        counts: Counts of the slot.
        ticks: Ticks of its source.
        surplus: Requests that the slots of its generation leave to each other; all of them share it.
    """

    def __init__(self, index: int, surplus: Surplus) -> None:
        self.index = index
        self.counts = Counts(index)
        self.ticks = Ticks()
        self.surplus = surplus
        self._flow: weakref.ref[SlotFlowControl] | None = None

    @classmethod
    def of(cls, generation: str, index: int) -> SharedSlot:
        """Return what a slot shares in this process; `RedisOptions.name` names its generation."""
        with _opening:
            found = _slots.get((generation, index))
            if found is None:
                beside = (slot.surplus for (name, _), slot in _slots.items() if name == generation)
                found = _slots[generation, index] = cls(index, next(beside, None) or Surplus())
            return found

    def open(self, flow: SlotFlowControl) -> None:
        """Source: let the other functions of this attempt find its flow control."""
        self._flow = weakref.ref(flow)

    def flow(self, flow_id: str) -> SlotFlowControl | None:
        """Return the flow control of that id; None if its source runs in another process, is gone or was replaced."""
        flow = self._flow() if self._flow else None
        return flow if flow is not None and flow.id == flow_id else None


_slots: WeakValueDictionary[tuple[str, int], SharedSlot] = WeakValueDictionary()
_opening = threading.Lock()
