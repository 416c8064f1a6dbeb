"""Operators that a package registers when it is imported, such as those of torchvision."""

import importlib
import importlib.util
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cluster_serving.job.models.base import cause
from cluster_serving.protocol.errors import ModelError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Package:
    """A package with operators for an engine.

    Attributes:
        module: Module that registers them when it is imported.
        requirement: Requirement that installs it.
        operators: Pattern of the beginnings of the operators' names, as the engine's error has them.
    """

    module: str
    requirement: str
    operators: str = ""


def load_with(load: Callable[[], T], missing: str, packages: Sequence[Package], path: Path, engine: str) -> T:
    """Load a model; if it lacks an operator, import the packages that may have it, where they are installed.

    The pattern `missing` matches the engine's error about an operator; its first group is the name.

    Raises:
        ModelError: If no package has the operator.
    """
    try:
        return load()
    except Exception as error:
        found = re.search(missing, str(error))
        if found is None:
            raise
        name, failure = found[1], error
    candidates = [package for package in packages if re.match(package.operators, name)]
    tried = []
    for package in candidates:
        if importlib.util.find_spec(package.module) is None:
            continue
        try:
            importlib.import_module(package.module)
            return load()
        except Exception as error:
            tried.append(f"with {package.module}: {cause(error)}")
    failed = f" ({'; '.join(tried)})" if tried else ""
    commands = " or ".join(f"pip install {package.requirement}" for package in candidates)
    install = f"run {commands} where the TaskManagers run, or " if commands else ""
    raise ModelError(
        f"{path} uses the operator {name}, which {engine} lacks{failed}: {install}serve it by a handler "
        "that imports the package with the operator (docs/how-to/handlers.md)"
    ) from failure
