"""Packages that take seconds to import: every worker of the tests reads all files, and runs some of the tests."""

from importlib import import_module


class Lazy:
    """Stands for a module, which is imported when something of it is used: `tf = Lazy("tensorflow")`."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        # pytest asks each global name of a file whether it is a test, a class or a method.
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        return getattr(import_module(self._name), name)
