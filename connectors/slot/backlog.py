"""Backlog: items that a thread works off beside the data path, which does not wait for it."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

log = logging.getLogger(__name__)

LIMIT_BYTES = 16 << 20
"""Most bytes of the items that wait, unless it is only one."""

_CLOSE_TIMEOUT = 2.0


class _Item(Protocol):
    @property
    def size(self) -> int: ...


T = TypeVar("T", bound=_Item)


class Backlog(ABC, Generic[T]):
    """Base of what works off items of one slot in a thread, which the first item starts.

    Args:
        name: Name of the thread.
        interval_s: Seconds for which items gather before they are worked off.
    """

    def __init__(self, name: str, interval_s: float) -> None:
        self._name = name
        self._interval_s = interval_s
        self._items: list[T] = []
        self._bytes = 0
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def put(self, items: Sequence[T], timeout: float = 0.0) -> bool:
        """Add items; return False if there is no room for them within `timeout` seconds."""
        size = sum(item.size for item in items)
        with self._changed:
            room = self._changed.wait_for(lambda: not self._bytes or self._bytes + size <= LIMIT_BYTES, timeout)
            if not room or self._closed.is_set():
                return False
            self._items += items
            self._bytes += size
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return True

    def close(self) -> None:
        """Work off what waits, unless it takes longer than 2 s."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
        if self._thread:
            self._thread.join(_CLOSE_TIMEOUT)

    @abstractmethod
    def _work(self, items: list[T]) -> list[T]:
        """Work off all items that wait, and return those that are to wait on."""

    def _run(self) -> None:
        ends = False
        while not ends:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._closed.is_set())
            # Nothing is added any more once it is closed.
            ends = self._closed.wait(self._interval_s)
            with self._changed:
                items, self._items = self._items, []
            try:
                waiting = self._work(items) if items else []
            except Exception:
                log.exception("%s: %d items are dropped", self._name, len(items))
                waiting = []
            with self._changed:
                self._bytes += sum(item.size for item in waiting) - sum(item.size for item in items)
                self._items[:0] = waiting
                self._changed.notify_all()
