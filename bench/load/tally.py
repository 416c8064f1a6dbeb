"""The account of all requests: every one that was sent is answered, failed or lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class LoadTally:
    """The account of requests.

    Attributes:
        sent: Requests that left.
        answered: Requests with a result.
        errors: Code → requests that were answered with it.
        repeated: Results of requests that had an answer already, or that were never sent.
        checked: Results that were compared with their reference.
        wrong: Results that were not like their reference.
    """

    sent: int = 0
    answered: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    checked: int = 0
    wrong: int = 0

    @property
    def lost(self) -> int:
        """Requests without an answer; meaningful when the sender has stopped waiting."""
        return self.sent - self.answered - self.errors.total()

    def __add__(self, other: LoadTally) -> LoadTally:
        return LoadTally(
            *(ours + theirs for ours, theirs in zip(vars(self).values(), vars(other).values(), strict=True))
        )
