"""Requests by client: of each second the busiest clients have their name, so that one that sends too many shows."""

import time
from collections import Counter, defaultdict

from cluster_serving.connectors.slot.base import Slot
from cluster_serving.connectors.slot.stage import Stage
from cluster_serving.protocol.entry import Entry, client_of
from cluster_serving.protocol.figures.metrics import CLIENT_REQUESTS

MOST = 10
"""Most clients that a slot knows by name; further ones take the place of the one that was busy longest ago."""

_BUSIEST = 3
_INTERVAL_S = 1.0
_LONGEST = 64
_OTHERS, _UNNAMED = "other", "unnamed"


class Clients(Stage):
    """Counts the requests that a slot reads, by client (`protocol.entry.Entry.client`)."""

    def __init__(self, slot: Slot) -> None:
        super().__init__(slot)
        # By origin and channel of the answer.
        self._senders: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._known: dict[str, None] = {}
        self._next = 0.0

    def begin(self) -> None:
        """Name the clients of the last second."""
        now = time.monotonic()
        if self._senders and now >= self._next:
            self._next = now + _INTERVAL_S
            self._count()
            self._forget()

    def admit(self, entries: list[Entry]) -> list[Entry]:
        """Count the requests."""
        # The copies that a shadow reads are no requests of the job.
        if entries and not self.slot.options.shadow:
            # For each request: its client is found later. This took a third of the time of `Counter.update`.
            senders = self._senders
            for entry in entries:
                senders[entry.origin, entry.reply_to] += 1
        return entries

    def close(self) -> None:
        """Count the remaining requests."""
        self._count()

    def _count(self) -> None:
        senders, self._senders = self._senders, defaultdict(int)
        by_client: Counter[str] = Counter()
        for sender, count in senders.items():
            # Clients write what they like there, and Redis takes no lone surrogates.
            client = client_of(*sender)[:_LONGEST].encode("utf8", "backslashreplace").decode()
            by_client[client or _UNNAMED] += count
        busiest = by_client.most_common(_BUSIEST)
        for client, count in busiest:
            self._known.pop(client, None)
            self._known[client] = None
            self.slot.counts.add(CLIENT_REQUESTS, count, client)
        if others := by_client.total() - sum(count for _, count in busiest):
            self.slot.counts.add(CLIENT_REQUESTS, others, _OTHERS)

    def _forget(self) -> None:
        """Delete the figures of the clients that were busy longest ago."""
        slot = self.slot
        for client in list(self._known)[:-MOST]:
            del self._known[client]
            field = f"{slot.options.version}/{slot.index}/{CLIENT_REQUESTS.name}:{client}"
            slot.client.hdel(slot.keys.slot_stats, field)
