"""Copies of models in this process: one for equal settings, which threads share, freed with its last user."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from cluster_serving.embed.settings import Settings
from cluster_serving.job import predictor

_copies: weakref.WeakValueDictionary[tuple[int, Settings], Copy] = weakref.WeakValueDictionary()
_inherited: list[Copy] = []
_lock = threading.Lock()


class Copy:
    """A copy of a model, which is loaded at its first use."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._loaded: predictor.Predictor | None = None

    @contextmanager
    def used(self) -> Iterator[predictor.Predictor]:
        """Provide the loaded model to this thread alone; raise `ModelError` if it cannot be loaded."""
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()
            yield self._loaded

    def _load(self) -> predictor.Predictor:
        own = self._settings
        loaded = predictor.Predictor(own.model, own.batch, own.image, own.post_processing, secret=own.secret)
        weakref.finalize(self, loaded.close)
        return loaded


def copy_of(settings: Settings) -> Copy:
    """Return the copy of this process; a process that was forked has its own, as engines do not survive a fork."""
    key = os.getpid(), settings
    with _lock:
        copy = _copies.get(key)
        if copy is None:
            copy = _copies[key] = Copy(settings)
        return copy


def _after_fork() -> None:
    global _lock
    # Another thread of the parent may have held it.
    _lock = threading.Lock()
    # A child process cannot free engines: their threads run in the parent alone.
    _inherited.extend(_copies.values())


os.register_at_fork(after_in_child=_after_fork)
