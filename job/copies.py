"""The copy of a servable that computes, and how it is called."""

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from cluster_serving.protocol.errors import InferenceTimeout

T = TypeVar("T")


class NotComputed(InferenceTimeout):
    """A batch was not tried, because the process is about to be replaced; no client gets this error."""


class Closable(Protocol):
    """A copy of something that computes."""

    def close(self) -> None:
        """Free the memory."""


M = TypeVar("M", bound=Closable)


class Copies(Generic[M]):
    """One copy of something that computes, called in the thread of the caller; `timeouts.watched` has a time limit.

    Args:
        load: Loads a copy and warms it up.

    Attributes:
        loaded: The copy that computes.
        in_place: True if `loaded` is always the same copy, and may be called without `call`.
        exhausted: True if this process computes nothing any more, and has to end once it has written its answers.
    """

    in_place = True
    exhausted = False

    def __init__(self, load: Callable[[], M]) -> None:
        self.loaded = load()

    def call(self, function: Callable[[Any], T], requests: int = 1, usual: bool = True) -> T:
        """Call a function with the copy; `requests` is their number, and `usual` False for a call of any duration.

        Raises:
            InferenceTimeout: If it takes longer than the time limit.
            NotComputed: If the process is about to be replaced.
        """
        return function(self.loaded)

    def close(self) -> None:
        """Free the copy."""
        self.loaded.close()
