"""Loading of the class of a handler.

A module of the model folder, and the modules beside it that it imports, are loaded anew for each handler, under names
of their own. So a changed handler runs its own code, also while another generation of the job, or another job, runs in
the same interpreter.
"""

import builtins
import importlib
import inspect
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

from cluster_serving.job.handlers.handler import METHODS, method
from cluster_serving.job.models import telemetry
from cluster_serving.job.models.detect import HANDLER_FILE
from cluster_serving.protocol.errors import ModelError

_MODULE = "handler"
_PREFIX = "cluster_serving_handler_"
_numbers = count(1)


class Code:
    """The class of a handler; `close` forgets its modules.

    `named` is the value of the key `handler`: "module:Class", or empty for the module `handler.py` of the folder.

    Raises:
        ModelError: If there is no such class, or its module cannot be imported.
    """

    def __init__(self, folder: Path, named: str = "") -> None:
        module_name, _, class_name = named.partition(":")
        module_name = module_name or _MODULE
        self._package = ""
        telemetry.forbid()
        try:
            if _is_in(folder, module_name.partition(".")[0]):
                self._package = _open_package(folder)
                module = importlib.import_module(f"{self._package}.{module_name}")
            else:
                module = importlib.import_module(module_name)
        except Exception as error:
            self.close()
            raise ModelError(
                f"the handler {module_name} of the model folder {folder} cannot be imported: {type(error).__name__}: "
                f"{error}"
            ) from error
        try:
            self.kind = _class_of(module, class_name, module_name)
        except ModelError:
            self.close()
            raise
        self.name = f"{module_name}:{self.kind.__name__}"

    def close(self) -> None:
        """Forget the modules of the model folder."""
        if self._package:
            # A copy, made at once: other slots import modules meanwhile.
            for name in list(sys.modules):
                if f"{name}.".startswith(f"{self._package}."):
                    del sys.modules[name]


def _class_of(module: ModuleType, name: str, module_name: str) -> type:
    if name:
        found = getattr(module, name, None)
        if not isinstance(found, type):
            raise ModelError(f"the module {module_name} has no class {name} (handler in config.yaml)")
        return found
    kinds = {
        kind.__name__: kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if kind.__module__ == module.__name__ and any(method(kind, name) for name in METHODS)
    }
    if "Handler" in kinds:
        return kinds["Handler"]
    if len(kinds) == 1:
        return next(iter(kinds.values()))
    if kinds:
        first = next(iter(kinds))
        raise ModelError(
            f"{HANDLER_FILE} has the classes {', '.join(kinds)}; name one of them Handler, or set handler: "
            f"{_MODULE}:{first} in config.yaml"
        )
    raise ModelError(f"{HANDLER_FILE} has no class with one of the methods {', '.join(METHODS)}")


def _is_in(folder: Path, module: str) -> bool:
    return (folder / f"{module}.py").is_file() or (folder / module / "__init__.py").is_file()


def _open_package(folder: Path) -> str:
    """Make a package of a name of its own, whose modules are those of the folder."""
    name = f"{_PREFIX}{next(_numbers)}"
    package = ModuleType(name, "The modules of a model folder.")
    package.__path__ = [str(folder)]
    package.__spec__ = ModuleSpec(name, None, is_package=True)
    _Finder.install()
    sys.modules[name] = package
    return name


class _Finder:
    """Finder of the modules of model folders."""

    @classmethod
    def install(cls) -> None:
        if not any(getattr(finder, "__name__", "") == cls.__name__ for finder in sys.meta_path):
            sys.meta_path.insert(0, cls)

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith(_PREFIX) or path is None:
            return None
        # Written files may be newer than what the system remembers of the folder.
        PathFinder.invalidate_caches()
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
            spec.cached = None
        return spec


class _Loader(SourceFileLoader):
    """Loader of a module that imports its siblings from its own folder first."""

    def path_stats(self, path: Any) -> Mapping[str, Any]:
        # Without them Python uses no compiled files, which could be those of an earlier version, and writes none.
        raise OSError("no compiled files")

    def exec_module(self, module: ModuleType) -> None:
        package = module.__name__.partition(".")[0]

        def import_(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
            top = name.partition(".")[0]
            if level == 0 and _is_in(Path(sys.modules[package].__path__[0]), top):
                found = importlib.import_module(f"{package}.{name}")
                return _with_submodules(found, fromlist) if fromlist else sys.modules[f"{package}.{top}"]
            return builtins.__import__(name, globals, locals, fromlist or (), level)

        # The import statements of a module call what its own builtins have.
        vars(module)["__builtins__"] = vars(builtins) | {"__import__": import_}
        super().exec_module(module)


def _with_submodules(module: ModuleType, fromlist: Sequence[str]) -> ModuleType:
    """Import the names of `from module import names` that are modules themselves."""
    for name in fromlist:
        if hasattr(module, "__path__") and name != "*" and not hasattr(module, name):
            importlib.import_module(f"{module.__name__}.{name}")
    return module
