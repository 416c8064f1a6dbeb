"""Ticks of the source of a slot: while Flink runs the slot, they come several times a second.

A thread may outlive the attempt of Flink that has started it, and must not report that a slot lives that Flink does not
run any more.
"""

from __future__ import annotations

import time

STALE_S = 10.0


class Ticks:
    """The ticks of one slot, which source and report share (`connectors.slot.shared`).

    Attributes:
        problem: Reason why the source cannot read any requests; empty for none.
        generations: Hash of the job's generations, as the source has read it last; empty before.
    """

    def __init__(self) -> None:
        self._last: float | None = None
        self.problem = ""
        self.generations: dict[bytes, bytes] = {}

    def note(self) -> None:
        """Note a tick."""
        self._last = time.monotonic()

    @property
    def stale(self) -> bool:
        """True if the ticks have ended; False before the first one, and if Flink runs the source elsewhere."""
        return self._last is not None and time.monotonic() - self._last > STALE_S
