"""Expiry: requests that have waited too long are answered with an error before they are computed."""

from cluster_serving.connectors.slot.base import Slot
from cluster_serving.connectors.slot.stage import Stage
from cluster_serving.protocol.entry import Entry


class Expiry(Stage):
    """Drops requests by their deadlines, those that are read and those that wait in the slot."""

    def __init__(self, slot: Slot) -> None:
        super().__init__(slot)
        self._expired = slot.metrics.counter("expired")

    def begin(self) -> None:
        """Drop what has expired in the slot, which makes room."""
        if late := self.slot.flow.drop_expired():
            self.slot.refuse(late)
            self._expired.inc(len(late))

    def admit(self, entries: list[Entry]) -> list[Entry]:
        """Drop what has expired in the queue. Where none queue up, the window finds the few that have."""
        slot = self.slot
        if slot.flow.deadlines is None or (slot.greedy and len(entries) < slot.read_size):
            return entries
        errors = slot.flow.deadlines.expired(entries)
        if not errors:
            return entries
        slot.refuse([(entry, errors[entry.place]) for entry in entries if entry.place in errors])
        self._expired.inc(len(errors))
        return [entry for entry in entries if entry.place not in errors]
