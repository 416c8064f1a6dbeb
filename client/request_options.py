"""How a request is queued: the keyword arguments of `enqueue` that are options and not inputs of the model.

A model may have inputs of the same names, so an option is told from an input by its type: a plain Python value (None,
bool, int, float or str) is the option, anything else, such as an array, is an input. A plain value that the option does
not take is refused, never sent as an input. `predict` takes its inputs as one argument and needs no such rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

import numpy as np

from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.keys import NORMAL, PRIORITIES

_SHORTEST = 0.001
_LONGEST_MS = 10**14


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """The options of one request.

    Attributes:
        deadline: Seconds that the request may wait before it is computed; None for the job's `requestDeadline`, `inf`
            for as long as it takes.
        priority: One of `protocol.keys.PRIORITIES`.
        block: Whether to wait for room if the queue is full; None: if there is a timeout.
        timeout: Seconds to wait for room at most; None for as long as it takes.

    Raises:
        InvalidInput: An option has a value that it cannot have.
    """

    deadline: float | None = None
    priority: str | None = None
    block: bool | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        if self.deadline is not None and not (_is_number(self.deadline) and self.deadline > 0):
            raise _refused("deadline", self.deadline, "seconds, more than 0")
        if self.priority is not None and self.priority not in PRIORITIES:
            raise _refused("priority", self.priority, " or ".join(PRIORITIES))
        if self.block is not None and not isinstance(self.block, bool):
            raise _refused("block", self.block, "True or False")
        if self.timeout is not None and not (_is_number(self.timeout) and self.timeout >= 0):
            raise _refused("timeout", self.timeout, "seconds, 0 or more")

    @classmethod
    def waiting(cls, timeout: float, priority: str = NORMAL) -> RequestOptions:
        """Options of a request whose caller waits for so many seconds and then no more.

        Raises:
            InvalidInput: The timeout is no number; or see `RequestOptions`.
        """
        try:
            seconds = float(timeout) if isinstance(timeout, Real) else math.nan
        except OverflowError:
            seconds = math.inf
        if math.isnan(seconds):
            raise InvalidInput(f"timeout is {str(timeout)[:64]!r} ({type(timeout).__name__}); expected seconds")
        return cls(deadline=max(seconds, _SHORTEST), priority=priority)

    @property
    def patience(self) -> float:
        """Seconds to wait for room in the queue."""
        block = self.timeout is not None if self.block is None else self.block
        return (math.inf if self.timeout is None else self.timeout) if block else 0.0

    @property
    def deadline_ms(self) -> int | None:
        """The deadline as it is sent: whole milliseconds, 0 for none; None to leave it to the job."""
        if self.deadline is None:
            return None
        return math.ceil(self.deadline * 1000) if self.deadline * 1000 < _LONGEST_MS else 0


DEFAULTS = RequestOptions()

_NAMES = frozenset(field.name for field in fields(RequestOptions))


def split(keywords: Mapping[str, object]) -> tuple[RequestOptions, Mapping[str, object]]:
    """Tell options from inputs; the inputs keep their order.

    Raises:
        InvalidInput: See `RequestOptions`.
    """
    if _NAMES.isdisjoint(keywords):
        return DEFAULTS, keywords
    options: dict[str, Any] = {name: keywords[name] for name in keywords if name in _NAMES and _plain(keywords[name])}
    return RequestOptions(**options), {name: value for name, value in keywords.items() if name not in options}


def _plain(value: object) -> bool:
    # numpy's float64 is a float, and still one of numpy's values.
    return value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, np.generic))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refused(name: str, value: object, expected: str) -> InvalidInput:
    return InvalidInput(
        f"option {name!r} is {str(value)[:64]!r} ({type(value).__name__}); expected {expected}. "
        "An input of that name is sent as an array"
    )
