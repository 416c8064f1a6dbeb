"""A module that is imported when it is first used, for packages that import more than a process needs."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class _Lazy(ModuleType):
    """Stands for a module until one of its names is used. `importlib.util.LazyLoader` fails in threads."""

    def __getattr__(self, name: str) -> Any:
        """Return a name of the module itself, which takes its own place first."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def defer(name: str) -> None:
    """Let `import name` import nothing, until the module is used; not if it is imported already, or not installed."""
    if name in sys.modules or (spec := find_spec(name)) is None:
        return
    lazy = _Lazy(name)
    lazy.__spec__ = spec
    sys.modules[name] = lazy
