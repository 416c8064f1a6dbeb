"""Flow control between the source and the sink of one task slot.

Subtask i of the source feeds subtask i of the batching window: that pair is a lane. Both normally live in one Python
process (in either execution mode), and then share a `Lane`: requests pass through it as the objects they are, the
source learns how many are unanswered, so it leaves the rest in Redis for other slots, and the window learns whether
more are on their way. If Flink placed the two in different processes, `find` gives None and both do without: requests
pass through Flink as bytes, and its own backpressure still holds.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Sequence
from weakref import WeakValueDictionary

from cluster_serving.protocol.entry import Entry


class Lane:
    """Counts the requests between source and sink; safe for one source thread and one sink thread.

    Args:
        limit: Most unanswered requests the source may hand over.
        pause: Seconds between two times that it hands over requests while others are being computed.

    Attributes:
        attached: Whether the window has shown that it shares this process.
        seconds_per_request: How long the latest batch took, divided by its size; 0 before there was one.
    """

    def __init__(self, limit: int, pause: float) -> None:
        self.id = uuid.uuid4().hex
        self._limit = limit
        self._pause = pause
        self._next_hand_over = 0.0
        self._changed = threading.Condition()
        self._announced = 0
        self._arrived = 0
        self._answered = 0
        self._entries: deque[Sequence[Entry]] = deque()
        self._began = 0.0
        self.attached = False
        self.seconds_per_request = 0.0

    @property
    def unanswered(self) -> int:
        """How many requests were handed over and are not answered yet."""
        # Until the window has shown that it shares this process, nothing would ever be counted as answered.
        return self._announced - self._answered if self.attached else 0

    @property
    def more(self) -> bool:
        """Whether requests have been announced that have not arrived yet."""
        return self._announced > self._arrived

    def capacity(self, timeout: float, ahead: bool) -> int:
        """Source: how many more requests may be handed over; waits up to `timeout` seconds for at least one.

        Args:
            timeout: In seconds.
            ahead: Whether to hand over more at once, while others are being computed. Otherwise it waits until they are
                answered, or for the pause, so that what comes meanwhile is read at once and becomes one batch.
        """
        with self._changed:
            if not ahead:
                pause = min(timeout, self._next_hand_over - time.monotonic())
                self._changed.wait_for(lambda: not self.unanswered, pause)
            self._changed.wait_for(lambda: self.unanswered < self._limit, timeout)
            return max(0, self._limit - self.unanswered)

    def wait_idle(self, timeout: float) -> bool:
        """Source: wait up to `timeout` seconds until all that was handed over is answered."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.unanswered, timeout)

    def announce(self, count: int) -> None:
        """Source: `count` requests are about to be handed over."""
        with self._changed:
            now = time.monotonic()
            if not self.unanswered:
                self._began = now
            self._announced += count
            self._next_hand_over = now + self._pause

    def hand_over(self, entries: Sequence[Entry]) -> None:
        """Source: leave requests for the window, once that is attached; a chunk tells it to take them."""
        self._entries.append(entries)

    def take(self) -> Sequence[Entry]:
        """Window: the requests of the next `hand_over`."""
        return self._entries.popleft()

    def arrive(self, count: int) -> bool:
        """Window: `count` requests came. Returns whether more have been announced and are on their way."""
        with self._changed:
            self.attached = True
            self._arrived += count
            return self.more

    def answer(self, count: int) -> None:
        """Sink: `count` requests were answered."""
        with self._changed:
            now = time.monotonic()
            self.seconds_per_request = (now - self._began) / count
            self._began = now
            self._answered += count
            self._changed.notify()


_lanes: WeakValueDictionary[str, Lane] = WeakValueDictionary()


def open_lane(limit: int, pause: float = 0.005) -> Lane:
    """Make a lane; it can be found for as long as the source holds it. See `Lane` for the arguments."""
    lane = Lane(limit, pause)
    _lanes[lane.id] = lane
    return lane


def find(lane_id: str) -> Lane | None:
    """The lane of that id, if its source lives in this process."""
    return _lanes.get(lane_id)
