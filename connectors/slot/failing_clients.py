"""Clients whose requests make batches fail, as one slot has learnt; their requests are batched apart for a while."""

import time
from collections.abc import Callable
from dataclasses import dataclass

_MOST_GOOD = 32
"""Requests per failure from which on a client's requests share batches with others: a search costs little then."""

_FORGET_S = 30.0
_OTHERS_S = 5.0
_MOST_CLIENTS = 1000


@dataclass(slots=True)
class _Record:
    seen: int
    failed: int
    since: float


class FailingClients:
    """Counts of the clients whose requests have failed together with their batch; false while there are none.

    The window asks about each request while there are such clients, and the inference tells which requests were
    culprits.

    Args:
        clock: Monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._records: dict[str, _Record] = {}
        # The last two clients whose requests share batches, and when: at least one of them is another than a given one.
        self._latest = self._before = ("", float("-inf"))

    def __len__(self) -> int:
        return len(self._records)

    def blame(self, client: str) -> bool:
        """Take note of a request of a client that made its batch fail; return True if this sets the client apart."""
        if len(self._records) >= _MOST_CLIENTS:
            self._records.clear()
        record = self._records.setdefault(client, _Record(0, 0, self._clock()))
        was_apart = self.is_apart(client)
        record.failed += 1
        return not was_apart and self.is_apart(client)

    def sends_apart(self, client: str, records: int = 1) -> bool:
        """Count the records of a request of a client; return True if they go into a batch of this client alone."""
        record = self._records.get(client)
        if record is None:
            self._note(client)
            return False
        if self._clock() - record.since > _FORGET_S:
            # Older failures count half, and once they are few, not at all.
            record.seen, record.failed, record.since = record.seen // 2, record.failed // 2, self._clock()
            if not record.failed:
                del self._records[client]
                return False
        record.seen += records
        apart = self.is_apart(client)
        if not apart:
            self._note(client)
        return apart

    def is_apart(self, client: str) -> bool:
        """Return True if the requests of a client go into batches of this client alone."""
        record = self._records.get(client)
        return record is not None and record.failed > 1 and record.failed * _MOST_GOOD > record.seen

    def mostly_fails(self, client: str) -> bool:
        """Return True if half of the requests of a client fail, so that each is best computed alone."""
        record = self._records.get(client)
        return record is not None and 2 * record.failed >= record.seen

    def beside_others(self, client: str) -> bool:
        """Return True if requests of clients other than this one have come in the last seconds.

        Clients without a name, as those of the original, may be several.
        """
        since = self._clock() - _OTHERS_S
        return any(at > since and (name != client or not name) for name, at in (self._latest, self._before))

    def _note(self, client: str) -> None:
        if client != self._latest[0]:
            self._before = self._latest
        self._latest = client, self._clock()
