"""Growth of the memory of this process during a call, so that trials end before they take too much."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from cluster_serving.protocol.host.memory import available_memory

_SHARE = 16


def limit(share: int = _SHARE) -> int:
    """Return the bytes by which a trial may grow, or another part of the memory that is free or could be freed."""
    with suppress(OSError, KeyError):
        return available_memory() // share
    return sys.maxsize


class Growth:
    """A context that measures by how much the memory of this process has grown, at most.

    Attributes:
        bytes: The growth; 0 where the system does not tell it (other systems than Linux). Memory that was free in this
            process before is not seen.
    """

    bytes = 0

    def __enter__(self) -> Growth:
        self._before = _peak()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bytes = max(0, _peak(reset=False) - self._before)


def _peak(reset: bool = True) -> int:
    """Return the largest resident memory since the last reset, which makes it that of now."""
    with suppress(OSError, StopIteration):
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    return 0
