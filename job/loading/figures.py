"""Figures of the process of a slot: how long the load of its model took, memory, processor time, room on the disk."""

import time
from collections.abc import Callable

from cluster_serving.job.predicting import Predicting
from cluster_serving.job.slot_part import SlotPart
from cluster_serving.protocol.figures.metrics import (
    CPU_STOLEN,
    CPU_TIME,
    CPU_WAIT,
    DISK_FREE,
    LOAD_TIME,
    MODEL_MEMORY,
    PROCESS_MEMORY,
)
from cluster_serving.protocol.host import machine, memory


class Figures(SlotPart):
    """Gauges of the process."""

    def before(self) -> None:
        """Begin to measure the load."""
        self._began, self._memory = time.monotonic(), memory.resident()

    def after(self, predictor: Predicting) -> None:
        """Offer the gauges."""
        grown = memory.resident() - self._memory
        counts, gauges = self.slot.shared.counts, process_gauges(time.monotonic() - self._began, grown)
        # Another thread may read the gauges.
        counts.gauges = counts.gauges | gauges


def process_gauges(seconds: float, grown: int) -> dict[str, Callable[[], int]]:
    """Return the gauges of a process that has loaded for so many seconds, and has grown by so many bytes."""
    return {
        LOAD_TIME.name: lambda: round(1e6 * seconds),
        MODEL_MEMORY.name: lambda: max(0, grown),
        PROCESS_MEMORY.name: memory.resident,
        CPU_TIME.name: machine.used_us,
        CPU_WAIT.name: machine.waiting.us,
        CPU_STOLEN.name: machine.stolen_us,
        DISK_FREE.name: machine.disk_free,
    }
