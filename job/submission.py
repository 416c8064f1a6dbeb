"""What the process that submits a job leaves out."""

import sys
from pathlib import Path
from types import ModuleType

import pyflink

__all__ = ["leave_out_beam"]


def leave_out_beam() -> None:
    """Keep this process from importing Apache Beam, which takes 1.5 s.

    PyFlink describes functions by a module of the package that runs them, and that package imports Beam first.
    """
    runtime = "pyflink.fn_execution"
    package = ModuleType(runtime)
    package.__path__ = [str(Path(folder, "fn_execution")) for folder in pyflink.__path__]
    sys.modules[runtime] = package
