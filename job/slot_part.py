"""What a part of a slot may do: before its model is loaded, and after."""

from collections.abc import Callable
from dataclasses import dataclass

import redis

from cluster_serving.connectors.slot.reporting import SlotReporter
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.job.options import JobOptions
from cluster_serving.job.predicting import Predicting


@dataclass(frozen=True)
class LoadingSlot:
    """A slot that loads its model.

    Attributes:
        client: Connection to the job's Redis.
        options: Options of the job.
        shared: What the slot shares.
        reporter: Writer of the reports of the slot.
        first_attempt: False if Flink has started this slot again.
    """

    client: redis.Redis
    options: JobOptions
    shared: SharedSlot
    reporter: SlotReporter
    first_attempt: bool


class SlotPart:
    """One concern around the model of a slot; every method does nothing by default.

    Args:
        slot: The slot.
    """

    def __init__(self, slot: LoadingSlot) -> None:
        self.slot = slot

    def before(self) -> None:
        """Do what is due before the model is loaded; an exception keeps it from being loaded, and is reported."""

    def after(self, predictor: Predicting) -> None:
        """Do what is due with the loaded model, before the slot is reported as ready."""


MakePart = Callable[[LoadingSlot], SlotPart]
"""A subclass of `SlotPart`, or a function that makes one."""
