"""Memory for the bodies of requests, of which all requests over HTTP and gRPC together may use a certain number."""

from __future__ import annotations

from cluster_serving.frontend.errors import Overloaded


class BodyMemory:
    """The bytes of all bodies that are being received, or whose requests are not answered yet.

    Args:
        most: Most bytes.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0

    def share(self) -> Share:
        """Return the part of a request, which holds nothing yet."""
        return Share(self)


class Share:
    """The part of one request.

    Attributes:
        held: Number of bytes.
    """

    __slots__ = ("_memory", "held")

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self.held = 0

    def fits(self, count: int) -> bool:
        """Return True if there is room for so many bytes more."""
        return self._memory.used + count <= self._memory.most

    def take(self, count: int) -> None:
        """Hold so many bytes more.

        Raises:
            Overloaded: If there is no room for them.
        """
        if not self.fits(count):
            raise Overloaded(f"the bodies of all requests together have {self._memory.most} bytes (maxBodyMemory)")
        self._memory.used += count
        self.held += count

    def give(self, count: int) -> None:
        """Give bytes back."""
        self._memory.used -= count
        self.held -= count

    def release(self) -> None:
        """Give all bytes back."""
        self.give(self.held)
