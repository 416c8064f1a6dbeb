"""Functions of a job by name: the program that submits the job imports none of their packages."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from pyflink.datastream import FlatMapFunction, KeyedProcessFunction

__all__ = ["Deferred"]


class _Method:
    """A method of a function that is made where it runs. Pickled, it becomes that method."""

    def __init__(self, function: Deferred | None = None) -> None:
        self._function = function
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, function: Deferred | None, owner: type) -> _Method:
        bound = _Method(function)
        bound._name = self._name
        return bound

    def __call__(self, *arguments: Any) -> Any:
        raise TypeError(f"{self._name} belongs to a function that is made where it runs")

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return getattr, (self._function, self._name)


class Deferred(FlatMapFunction, KeyedProcessFunction):
    """A function of PyFlink that is made where it runs. Pickled, it becomes what `make` returns.

    PyFlink pickles the functions of a job, or methods of them, and asks nothing else of them before.

    Args:
        make: `module:name` of what makes the function.
        arguments: Its arguments.
    """

    # PyFlink takes these methods of a function that maps; `process_element` is needed for an instance.
    open, close, flat_map, process_element = _Method(), _Method(), _Method(), _Method()

    def __init__(self, make: str, *arguments: Any) -> None:
        self._make = make
        self._arguments = arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _made, (self._make, self._arguments)


def _made(make: str, arguments: tuple[Any, ...]) -> Any:
    module, _, name = make.partition(":")
    return getattr(import_module(module), name)(*arguments)
