"""Requests that a slot has read, and leaves to the other slots of its process while it computes a long batch."""

from __future__ import annotations

import socket
import threading
import weakref
from collections import deque
from collections.abc import Container, Sequence
from contextlib import suppress
from weakref import WeakValueDictionary

from cluster_serving.protocol.entry import Entry


class Left:
    """Requests of one job in this process; the first slot that is free takes them.

    Attributes:
        socket: Readable while requests may be left, for slots that wait.
    """

    def __init__(self) -> None:
        self._entries: deque[tuple[str, Sequence[Entry]]] = deque()
        self.socket, self._waker = socket.socketpair()
        for each in (self.socket, self._waker):
            each.setblocking(False)
            weakref.finalize(self, each.close)

    @classmethod
    def of(cls, generation: str) -> Left:
        """Return that of a job in this process."""
        with _opening:
            found = _lefts.get(generation)
            if found is None:
                found = _lefts[generation] = cls()
            return found

    def put(self, name: str, entries: Sequence[Entry]) -> None:
        """Leave requests for a model."""
        self._entries.append((name, entries))
        with suppress(BlockingIOError):
            self._waker.send(b"1")

    def take(self, names: Container[str]) -> tuple[str, Sequence[Entry]] | None:
        """Take some requests for one of these models, and its name; None for none."""
        for _ in range(len(self._entries)):
            with suppress(IndexError):
                found = self._entries.popleft()
                if found[0] in names:
                    return found
                # A slot that serves the model takes them.
                self._entries.append(found)
        with suppress(BlockingIOError):
            self.socket.recv(1024)
        return None


_lefts: WeakValueDictionary[str, Left] = WeakValueDictionary()
_opening = threading.Lock()
