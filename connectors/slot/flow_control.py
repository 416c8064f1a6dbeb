"""Flow control between the source and the sink of one task slot.

Subtask i of the source feeds subtask i of the batching window, in the same slot. Source and window normally live in one
Python process (in either execution mode) and share a `SlotFlowControl` (`slot.shared`). Requests pass through it as
Python objects. The source learns how many requests are unanswered, so that it leaves the rest in Redis for other slots.
The window learns whether more requests are on their way.

If Flink runs the two operators in different processes, the window finds no flow control. Requests then pass through
Flink as bytes, and Flink's own backpressure applies.

In process mode a window opens, and behind it the model, only when the first record arrives. Before that the source
reads nothing. A request that lies in Flink meanwhile could not be taken back, and a crash in the load of the model
would count as its own.
"""

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol
from weakref import WeakMethod

from cluster_serving.connectors.slot.deadlines import Deadlines
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import DeadlineExceeded

_STALLED = 0.5
"""Seconds of a batch from which on its slot may count as stalled."""

_SOON = 0.002
"""Seconds of a request below which the window reads by itself. A slower model computes while the source reads."""

_LATE = 0.05
"""Seconds of a batch after which the source reads again, or looks after requests that a stalled slot has read."""

Read = Callable[[float], Sequence[Entry]]
"""Reads and announces new requests; waits for them for so many seconds at most. Empty: the source has to read."""


class Apart(Protocol):
    """Clients whose requests are batched apart (`failing_clients`)."""

    def sends_apart(self, client: str, records: int = 1) -> bool:
        """Count the records of a request of a client; return True if they go into a batch of this client alone."""


class Surplus:
    """Requests that a slot has read and leaves to the other slots of its generation in this process."""

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque()

    def take(self, count: int) -> list[Entry]:
        """Remove and return up to `count` requests, the oldest first."""
        taken: list[Entry] = []
        with suppress(IndexError):
            while len(taken) < count:
                taken.append(self.entries.popleft())
        return taken


class SlotFlowControl:
    """Count of the requests between source and sink; safe for one source thread and one sink thread.

    A request of a fast model is answered sooner than the thread of the source wakes up. So a window that waits for
    requests reads them by itself, in its own thread, and the source waits. One of both reads at a time: the window
    from a `hand_over` that it has waited for until `give_back`, or until a batch takes long.

    Args:
        limit: Most unanswered requests that the source may hand over.
        pause: Seconds that the source waits between two reads while requests are being computed.
        surplus: Requests of stalled slots, which the slots of a generation in this process share; None for none.
        read: Bound method that reads for the window, to which there is only a weak reference; None for none.
        deadlines: Deadlines of the requests; None for none.

    Attributes:
        id: Random id of this attempt at the slot.
        deadlines: As given.
        limit: As given.
        attached: True once the window has shown that it shares this process.
        overlaps: True if the model begins requests while it computes others, one by one. Then the source reads at once.
        searches: True while requests wait behind new ones, which the next call for new ones goes on with.
        seconds_per_request: Duration of the latest batch divided by its size; 0 before the first batch.
        surplus: Requests of slots that are stalled.
        apart: Clients whose requests are batched apart; None while there are none.
    """

    def __init__(
        self,
        limit: int,
        pause: float = 0.005,
        surplus: Surplus | None = None,
        read: Read | None = None,
        deadlines: Deadlines | None = None,
    ) -> None:
        self.id = uuid.uuid4().hex
        self.deadlines = deadlines
        self._read = WeakMethod(read) if read else None
        self.surplus = surplus or Surplus()
        self.limit = limit
        self._pause = pause
        self._next_hand_over = 0.0
        lock = threading.RLock()
        self._changed, self._handed_over = threading.Condition(lock), threading.Condition(lock)
        self._given_back = threading.Condition(lock)
        self._awaited = False
        self._window_reads = False
        self._announced = 0
        self._arrived = 0
        self._answered = 0
        self._entries: deque[Sequence[Entry]] = deque()
        self._began = 0.0
        self._longest = 0.0
        self.attached = False
        self.overlaps = False
        self.searches = False
        self.seconds_per_request = 0.0
        self.apart: Apart | None = None

    @property
    def unanswered(self) -> int:
        """Number of requests handed over and not yet answered; 0 while no window is attached."""
        # A window in another process never reports an answer.
        return self._announced - self._answered if self.attached else 0

    @property
    def idle(self) -> bool:
        """True if all requests handed over are answered; False while that is not known."""
        return self._announced == self._answered

    @property
    def more(self) -> bool:
        """True if requests have been announced that have not arrived yet."""
        return self._announced > self._arrived

    def capacity(self, timeout: float, ahead: bool) -> int:
        """Source: return how many more requests may be handed over; wait until it is at least one.

        Args:
            timeout: Longest wait, in seconds.
            ahead: Hand over more while other requests are being computed. Otherwise, and unless the model overlaps, the
                source waits until they are answered, or for the pause. The requests of that time are then read at once
                and become one batch.
        """
        with self._changed:
            if not (ahead or self.overlaps):
                pause = min(timeout, self._next_hand_over - time.monotonic())
                self._changed.wait_for(lambda: not self.unanswered, pause)
            self._changed.wait_for(lambda: self.unanswered < self.limit, timeout)
            return max(0, self.limit - self.unanswered)

    def wait_idle(self, timeout: float) -> bool:
        """Source: wait up to `timeout` seconds until all requests are answered; return True if they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.unanswered, timeout)

    def wait_attached(self, timeout: float) -> bool:
        """Source: wait up to `timeout` seconds until a window has attached; return True if one has."""
        with self._changed:
            return self._changed.wait_for(lambda: self.attached, timeout)

    def announce(self, count: int) -> None:
        """Source: announce `count` requests that will be handed over next."""
        with self._changed:
            now = time.monotonic()
            if not self.unanswered:
                self._began = now
            self._announced += count
            self._next_hand_over = now + self._pause

    def hand_over(self, entries: Sequence[Entry]) -> bool:
        """Source: leave requests for an attached window.

        Return True if the window waits for them. Otherwise an `EntryBatch` without entries has to tell it to take them.
        """
        with self._changed:
            self._entries.append(entries)
            awaited, self._awaited = self._awaited, False
            if awaited:
                fast = 0 < self.seconds_per_request < _SOON and not self.overlaps
                self._window_reads = fast and self._read is not None and self._announced - self._arrived == len(entries)
                self._handed_over.notify()
            return awaited

    def is_turn(self, timeout: float) -> bool:
        """Source: return True if it may read; wait up to `timeout` seconds while the window reads by itself."""
        with self._changed:
            if self._window_reads and not self._given_back.wait_for(lambda: not self._window_reads, timeout):
                self._window_reads = not self.unanswered or time.monotonic() - self._began < _LATE
            return not self._window_reads

    def give_back(self) -> None:
        """Window: read no more, and leave that to the source."""
        with self._changed:
            if self._window_reads:
                self._window_reads = False
                self._given_back.notify()

    def take(self) -> Sequence[Entry]:
        """Window: take the requests of the next `hand_over`, which an `EntryBatch` has announced."""
        with self._changed:
            return self._entries.popleft()

    def wait(self, timeout: float) -> Sequence[Entry] | None:
        """Window: read requests, or take those of the next `hand_over`; wait up to `timeout` seconds.

        Return None if none came in time, or if an `EntryBatch` is on its way that announces them.
        """
        with self._changed:
            # The source may take its turn while something is unanswered.
            read = self._read() if self._read and self._window_reads and not self.unanswered else None
        if read:
            if entries := read(timeout):
                return entries
            self.give_back()
            return None
        with self._changed:
            if self._entries:
                return None
            self._awaited = True
            self._handed_over.wait_for(lambda: not self._awaited, timeout)
            if self._awaited:
                self._awaited = False
                return None
            return self._entries.popleft()

    def take_back(self) -> bool:
        """Source: if the model takes unusually long, leave what the window has not taken to the other slots.

        Return True if so; the source then reads nothing.
        """
        with self._changed:
            if not self.unanswered or time.monotonic() - self._began < max(_STALLED, 4 * self._longest):
                return False
            # Requests may have been left to the call for the next batch.
            batches, kept = list(self._entries), 1 if self.overlaps or self.searches else 0
            left = [entry for entries in batches[kept:] for entry in entries]
            # The window still takes as many times.
            self._entries = deque([*batches[:kept], *([()] * len(batches[kept:]))])
            self._announced -= len(left)
            self.surplus.entries += left
            return True

    def drop_expired(self) -> list[tuple[Entry, DeadlineExceeded]]:
        """Source: while a batch takes long, remove and return the requests that expire before the window takes them."""
        if self.deadlines is None or not self._entries or time.monotonic() - self._began < _LATE:
            return []
        with self._changed:
            waiting = [entry for entries in self._entries for entry in entries]
        errors = self.deadlines.expired(waiting)
        if not errors:
            return []
        with self._changed:
            dropped = [
                (entry, errors[entry.place]) for entries in self._entries for entry in entries if entry.place in errors
            ]
            # The window still takes as many times.
            self._entries = deque(
                [entry for entry in entries if entry.place not in errors] for entries in self._entries
            )
            self._announced -= len(dropped)
        return dropped

    def arrive(self, count: int) -> bool:
        """Window: report that `count` requests came; return True if more are on their way."""
        with self._changed:
            if not self.attached:
                self.attached = True
                self._changed.notify()
            self._arrived += count
            return self.more

    def answer(self, count: int) -> None:
        """Sink: report that `count` requests were answered."""
        with self._changed:
            now = time.monotonic()
            seconds = now - self._began
            self.seconds_per_request = seconds / count
            # One unusual batch is soon forgotten.
            self._longest = max(seconds, 0.8 * self._longest)
            self._began = now
            self._answered += count
            self._changed.notify()
