"""Imports of engines without the optional libraries that they would load: a model's file needs no such library.

XGBoost and LightGBM import scikit-learn and pandas for classes that nothing here uses. These take 100 MB and up to two
seconds of a processor in each process, at each start and restart.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

_importing = threading.Lock()


def lean(name: str, without: Collection[str]) -> Any:
    """Import a package of Python once more, under a name of its own and without some others.

    Code that imports the package itself, such as a handler in the same process, gets it whole.

    Raises:
        ModuleNotFoundError: If the package is not installed.
    """
    own = f"cluster_serving_{name}"
    with _importing:
        if own in sys.modules:
            return sys.modules[own]
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        folders = found.submodule_search_locations
        spec = importlib.util.spec_from_file_location(own, found.origin, submodule_search_locations=folders)
        assert spec is not None and spec.loader is not None  # noqa: S101 - it has a file
        module = importlib.util.module_from_spec(spec)
        before = {*sys.modules}
        sys.modules[own] = module
        try:
            with _missing(without):
                spec.loader.exec_module(module)
        except BaseException:
            for each in [each for each in {*sys.modules} - before if each.partition(".")[0] == own]:
                del sys.modules[each]
            raise
        return module


@contextmanager
def _missing(names: Collection[str]) -> Iterator[None]:
    """Hide these packages from this thread, unless they are imported already."""
    finder = _Without(frozenset(names), threading.get_ident())
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Without(MetaPathFinder):
    def __init__(self, names: frozenset[str], thread: int) -> None:
        self._names, self._thread = names, thread

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        if threading.get_ident() == self._thread and fullname.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None
