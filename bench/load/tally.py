"""The account of all requests: every one that was sent is answered, failed or lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass
class Tally:
    """The account of requests by their name, which is the uri where the protocol has one.

    `answered` counts requests with a result, `errors` those that were answered with an error, by its code. `repeated`
    counts answers to requests that had one already, or that were never sent. Of the `checked` results, `wrong` were not
    like their reference.
    """

    sent: int = 0
    answered: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    checked: int = 0
    wrong: int = 0
    _open: set[Hashable] = field(default_factory=set)
    _lost: int = 0

    @property
    def lost(self) -> int:
        """Requests without an answer; meaningful when the sender has stopped waiting."""
        return self._lost + len(self._open)

    def send(self, name: Hashable) -> None:
        """Count a request that leaves."""
        self.sent += 1
        self._open.add(name)

    def answer(self, name: Hashable) -> bool:
        """Count a result. Return False if it belongs to no open request."""
        if name not in self._open:
            self.repeated += 1
            return False
        self._open.discard(name)
        self.answered += 1
        return True

    def fail(self, name: Hashable, code: str) -> None:
        """Count an error that came instead of a result."""
        self._open.discard(name)
        self.errors[code] += 1

    def lose(self, name: Hashable) -> None:
        """Count a request whose sender has stopped waiting."""
        self._open.discard(name)
        self._lost += 1

    def check(self, right: bool) -> None:
        """Count a result that was compared."""
        self.checked += 1
        self.wrong += not right

    def add(self, other: Tally) -> None:
        """Add the account of another generator process."""
        self.sent += other.sent
        self.answered += other.answered
        self.errors += other.errors
        self.repeated += other.repeated
        self.checked += other.checked
        self.wrong += other.wrong
        self._lost += other.lost
