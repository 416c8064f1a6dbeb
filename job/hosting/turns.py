"""Turns: of several queues with waiting requests, the one that is served next."""


class Turns:
    """Fair shares of the seconds of a slot among the queues that have requests waiting.

    Each queue has an account of the seconds that it was served for. The smallest account is next. So a queue of
    slow requests gets as many seconds as one of fast ones, and each waits for one batch of every other at most. A queue
    that was empty begins with what the others have got meanwhile: it cannot save seconds, and keeps what it has had too
    much.
    """

    def __init__(self) -> None:
        self._served: dict[str, float] = {}
        self._waiting: dict[str, None] = {}
        self._now = 0.0

    def __contains__(self, name: object) -> bool:
        return name in self._waiting

    def add(self, name: str) -> None:
        """Note that requests of a queue wait."""
        if name not in self._waiting:
            self._served[name] = max(self._served.get(name, 0.0), self._now)
            self._waiting[name] = None

    def next(self) -> str | None:
        """Return the queue that is served next; None if no requests wait."""
        if not self._waiting:
            return None
        name = min(self._waiting, key=self._served.__getitem__)
        self._now = max(self._now, self._served[name])
        return name

    def spent(self, name: str, seconds: float, goes_on: bool) -> None:
        """Note for how long a queue was served, and whether further requests of it wait."""
        self._served[name] += seconds
        # The last among equals.
        self._waiting.pop(name, None)
        if goes_on:
            self._waiting[name] = None

    def remove(self, name: str) -> None:
        """Forget a queue."""
        self._waiting.pop(name, None)
        self._served.pop(name, None)

    def clear(self) -> None:
        """Forget which requests wait."""
        self._waiting.clear()
