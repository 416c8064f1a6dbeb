"""Locks around loads: models of some formats cannot be loaded side by side in one process (`Format.lock`)."""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from cluster_serving.job.options import ModelOptions

log = logging.getLogger(__name__)

_PATIENCE_S = 30.0
"""Seconds between two lines of the log about a load that waits."""


class _LoadLock:
    """A lock that knows the load that holds it. Its thread may take it again: a handler may load one with a handler."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._holder = "", 0.0

    @contextmanager
    def held(self, load: str) -> Iterator[None]:
        began = time.monotonic()
        while not self._lock.acquire(timeout=_PATIENCE_S):
            now = time.monotonic()
            holder, since = self._holder
            log.warning(
                "%s has waited for %.0f s to be loaded, as such models load one after another in a process; %s has "
                "been loading for %.0f s",
                load,
                now - began,
                holder,
                now - since,
            )
        before, self._holder = self._holder, (load, time.monotonic())
        try:
            yield
        finally:
            self._holder = before
            self._lock.release()


_locks: dict[str, _LoadLock] = {}


@contextmanager
def held(name: str, options: ModelOptions) -> Iterator[None]:
    """Hold the lock of a format while a model is loaded and called for the first time; nothing for an empty name.

    A load that waits for long logs the load that holds the lock.
    """
    if not name:
        yield
        return
    load = f"the model {options.as_configured(options.path)} of slot {options.slot}"
    with _locks.setdefault(name, _LoadLock()).held(load):
        yield


# Another thread of the parent may hold a lock.
os.register_at_fork(after_in_child=_locks.clear)
