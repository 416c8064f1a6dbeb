"""Dynamic batching: gather requests of equal signature until a batch is complete, without Flink and without a clock."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Waiting(Generic[T]):
    since: float
    items: list[T] = field(default_factory=list)
    size: int = 0


class Batcher(Generic[T]):
    """Items that wait for their batch.

    A batch holds items of one signature in the order of arrival, whose sizes are `max_size` at most in all. It is
    complete when it is full (`add`) or when its oldest item has waited for `timeout` (`expire`). A caller that expects
    no more items completes all batches (`flush`).

    Args:
        max_size: Largest batch, at least 1.
        timeout: Longest wait of an item, in the unit of `now`.
        on_close: Takes the reason for closing a batch ("full", "idle", "timeout"), and the arrival of its oldest item.
    """

    def __init__(
        self, max_size: int, timeout: float, on_close: Callable[[str, float], object] = lambda reason, since: None
    ) -> None:
        self._max_size = max_size
        self._timeout = timeout
        self._on_close = on_close
        # Signatures in the order of their oldest item, so the first is always the next to expire.
        self._waiting: dict[Hashable, _Waiting[T]] = {}

    def room(self, signature: Hashable) -> int:
        """Return the largest size of an item that the batch of a signature has room for."""
        waiting = self._waiting.get(signature)
        return self._max_size - waiting.size if waiting else self._max_size

    def add(self, signature: Hashable, item: T, now: float, size: int = 1) -> list[T] | None:
        """Take an item, for which there is room; return the batch if this item fills it, else None."""
        waiting = self._waiting.get(signature)
        if waiting is None:
            waiting = self._waiting[signature] = _Waiting(now)
        waiting.items.append(item)
        waiting.size += size
        return self._close(signature, "full") if waiting.size >= self._max_size else None

    def expire(self, now: float) -> list[list[T]]:
        """Remove and return the batches whose oldest item has waited for the timeout, oldest first."""
        due = [signature for signature, waiting in self._waiting.items() if waiting.since + self._timeout <= now]
        return [self._close(signature, "timeout") for signature in due]

    def flush(self) -> list[list[T]]:
        """Remove and return all batches, oldest first."""
        return [self._close(signature, "idle") for signature in [*self._waiting]]

    def next_expiry(self) -> float | None:
        """Return the time at which `expire` should next be called; None if no item waits."""
        return next((waiting.since + self._timeout for waiting in self._waiting.values()), None)

    def _close(self, signature: Hashable, reason: str) -> list[T]:
        waiting = self._waiting.pop(signature)
        self._on_close(reason, waiting.since)
        return waiting.items
