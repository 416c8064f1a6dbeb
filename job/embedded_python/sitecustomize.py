"""Python imports this module when it starts. In a TaskManager it keeps PyFlink from importing Apache Beam.

Thread mode needs no Beam, which takes 1 s and 90 MB of each TaskManager. PyFlink imports it only to learn if its own
compiled modules can be used. Beam stays importable for all that uses it. Process mode, whose workers are processes of
Python, is as it was.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

_RUNTIME = "pyflink.fn_execution"


class WithoutBeam:
    """Finds the package `pyflink.fn_execution`, and loads it without its `__init__`, which imports Beam.

    It is no subclass of what `importlib.abc` has for it: that module imports 60 others, for 30 ms of each Python. At
    each start, a TaskManager asks four of them where Python lies, and waits.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the package with this loader; None for all other modules."""
        found = PathFinder.find_spec(name, path) if name == _RUNTIME else None
        if found is not None:
            found.loader = self  # type: ignore[assignment]
        return found

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Set the one name that the package has: True if the compiled modules can be used."""
        usable = bool(os.environ.get("PYFLINK_CYTHON_ENABLED", "true"))
        try:
            from pyflink.fn_execution import coder_impl_fast, stream_fast  # noqa: F401
        except ImportError:
            usable = False
        vars(module)["PYFLINK_CYTHON_ENABLED"] = usable


def is_embedded() -> bool:
    """Return True if this Python runs in a JVM."""
    return os.path.basename(os.path.realpath("/proc/self/exe")) == "java"


def run_next() -> None:
    """Run the `sitecustomize` that this one hides, such as that of a distribution of Linux."""
    here = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec(__name__, [entry for entry in sys.path if os.path.abspath(entry) != here])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


if is_embedded():
    sys.meta_path.insert(0, WithoutBeam())
if __name__ == "sitecustomize":
    run_next()
