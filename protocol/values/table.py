"""The table of conversions: for each kind of value and each target, what becomes of the value.

| value                        | float   | whole number     | bool   | text    | text of a category |
|------------------------------|---------|------------------|--------|---------|--------------------|
| null, NA, NaT                | NaN     | refused          | refused| missing¹| missing            |
| NaN                          | exact   | refused          | refused| missing¹| missing            |
| infinity                     | exact   | refused          | refused| refused | refused            |
| true, false                  | 1, 0    | 1, 0             | exact  | refused | 1, 0³              |
| whole number                 | rounded | exact            | 0, 1   | refused | its digits²        |
| whole number beyond 64 bits  | rounded | refused          | refused| refused | refused            |
| number with a fraction       | rounded | refused          | refused| refused | refused            |
| text of a number, true, false| as that | as that          | as that| exact   | exact              |
| other text                   | refused | refused          | refused| exact   | exact              |
| bytes of UTF-8               | refused | refused          | refused| exact   | exact              |
| date, time, duration         | refused | refused          | refused| refused | refused            |
| list, object                 | refused | refused          | refused| refused | refused            |

¹ For a column of a table; refused for any other text.
² Not of 1.0, which is refused.
³ As CatBoost reads them.

1.0 is a whole number, and so is a decimal of that value; of JSON, only below 2^53, where a float is what was written.
A number that the target cannot hold is refused. A whole number of a typed array is never rounded beyond 2^53: it is an
identifier there (`arrays`).
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np

from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.slots import TensorSpec
from cluster_serving.protocol.values import utf8
from cluster_serving.protocol.values.lists import shown
from cluster_serving.protocol.values.number_lists import EXACT, LEAST, MOST


class Rule(Enum):
    """What becomes of a value: the same value, the nearest one, a missing one, or an error."""

    EXACT = "exact"
    ROUNDED = "rounded"
    MISSING = "missing"
    REFUSED = "refused"


class Kind(Enum):
    """Kinds of values; the value of a member is its name in messages."""

    NULL = "null"
    NAN = "NaN"
    INFINITE = "infinity"
    BOOL = "a truth value"
    WHOLE = "a whole number"
    HUGE = "a whole number beyond 64 bits"
    FRACTION = "a number with a fraction"
    TEXT = "a text"
    BYTES = "bytes"
    DATE = "a date, time or duration"
    OTHER = "a list or an object"


class Target(Enum):
    """Kinds of inputs; the value of a member is what they expect, in words."""

    FLOAT = "a number"
    WHOLE = "a whole number of at most 64 bits, in digits"
    BOOL = "true or false"
    TEXT = "a text"
    CODES = "a text or a whole number"


_E, _R, _M, _N = Rule.EXACT, Rule.ROUNDED, Rule.MISSING, Rule.REFUSED
_RULES: Mapping[Kind, tuple[Rule, ...]] = {
    Kind.NULL: (_M, _N, _N, _M, _M),
    Kind.NAN: (_M, _N, _N, _M, _M),
    Kind.INFINITE: (_E, _N, _N, _N, _N),
    Kind.BOOL: (_E, _E, _E, _N, _E),
    Kind.WHOLE: (_R, _E, _E, _N, _E),
    Kind.HUGE: (_R, _N, _N, _N, _N),
    Kind.FRACTION: (_R, _N, _N, _N, _N),
    Kind.TEXT: (_R, _E, _E, _E, _E),
    Kind.BYTES: (_N, _N, _N, _E, _E),
    Kind.DATE: (_N,) * len(Target),
    Kind.OTHER: (_N,) * len(Target),
}
RULES: Mapping[Kind, Mapping[Target, Rule]] = {kind: dict(zip(Target, rules)) for kind, rules in _RULES.items()}
"""The table. A text is that of a number, or of true or false, for a target that is no text, and refused otherwise."""

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?|[+-]?nan", re.IGNORECASE | re.ASCII)
_MOST_DIGITS = 400
_BOOLS = {"true": True, "false": False}

_DATES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
_MISSING = frozenset({"NAType", "NaTType"})
"""Types of the missing values of pandas, which need not be installed."""


class Refused(ValueError):
    """A value that has no place in an input; the message is what was expected.

    Attributes:
        index: Position of the value in its array or list.
        value: The value.
    """

    def __init__(self, expected: str, value: object = None, index: Sequence[int] = ()) -> None:
        super().__init__(expected)
        self.value = value
        self.index = tuple(index)

    def of(self, name: str) -> InvalidInput:
        """Return the error of an input of this name."""
        place = f": {name}{''.join(f'[{at}]' for at in self.index)}" if self.index else ""
        return InvalidInput(f"input {name!r}{place} is {words(self.value)}; expected {self}")


def target_of(spec: TensorSpec | None) -> Target | None:
    """Return the kind of an input; None if its dtype is unknown."""
    if spec is None or not spec.dtype:
        return None
    if spec.dtype == "str":
        return Target.CODES if spec.column == "codes" else Target.TEXT
    kind = np.dtype(spec.dtype).kind
    return Target.BOOL if kind == "b" else Target.WHOLE if kind in "iu" else Target.FLOAT if kind == "f" else None


def takes_missing(spec: TensorSpec) -> bool:
    """Return True if a missing value has a place in an input: NaN in one of floats, None in a text of a table."""
    target = target_of(spec)
    return target is Target.FLOAT or (target in (Target.TEXT, Target.CODES) and bool(spec.column))


def is_missing(value: object) -> bool:
    """Return True for None, and for pandas' NA and NaT."""
    return value is None or type(value).__name__ in _MISSING or (isinstance(value, _DATES[3:]) and np.isnat(value))


def kind_of(value: object, typed: bool = False) -> Kind:
    """Return the kind of a value. A `typed` float of any size is a whole number if it has no fraction."""
    if is_missing(value):
        return Kind.NULL
    if isinstance(value, (bool, np.bool_)):
        return Kind.BOOL
    if isinstance(value, _DATES):
        return Kind.DATE
    if isinstance(value, (int, np.integer)):
        return Kind.WHOLE if LEAST <= int(value) <= MOST else Kind.HUGE
    if isinstance(value, (float, np.floating)):
        return _kind_of_float(float(value), math.inf if typed else EXACT)
    if isinstance(value, Decimal):
        return _kind_of_decimal(value)
    if isinstance(value, str):
        return Kind.TEXT
    return Kind.BYTES if isinstance(value, (bytes, bytearray, memoryview)) else Kind.OTHER


def _kind_of_float(value: float, below: float) -> Kind:
    if math.isnan(value):
        return Kind.NAN
    if math.isinf(value):
        return Kind.INFINITE
    return Kind.WHOLE if abs(value) < below and value.is_integer() else Kind.FRACTION


def _kind_of_decimal(value: Decimal) -> Kind:
    if value.is_nan():
        return Kind.NAN
    if value.is_infinite():
        return Kind.INFINITE
    if value.adjusted() > _MOST_DIGITS or value != value.to_integral_value():
        return Kind.FRACTION
    return Kind.WHOLE if LEAST <= value <= MOST else Kind.HUGE


def words(value: object) -> str:
    """Return a value as messages show it: short, and a missing one as null."""
    if is_missing(value):
        return "null"
    return str(value) if isinstance(value, (Decimal, np.generic)) else shown(value)


def converted(value: object, spec: TensorSpec, typed: bool = False) -> Any:
    """Return a single value as an input of a known dtype holds it: float, int, bool or str; None for a missing text.

    A `typed` value is one of a typed array, and not of JSON: a whole number of it is not rounded beyond 2^53.

    Raises:
        Refused: If the table refuses the value; the message says what was expected.
    """
    target = target_of(spec)
    if target is None:
        raise Refused(f"values of {spec.dtype or 'any dtype'}, which have no conversion")
    kind = kind_of(value, typed)
    if typed and target is Target.FLOAT and isinstance(value, (int, np.integer)) and not holds(spec.dtype, int(value)):
        raise Refused(unrounded(spec.dtype))
    if kind is Kind.TEXT and target not in (Target.TEXT, Target.CODES):
        value = read_number(str(value))
        kind = Kind.OTHER if value is None else kind_of(value)
    rule = RULES[kind][target]
    if rule is Rule.REFUSED or (rule is Rule.MISSING and not takes_missing(spec)):
        raise Refused(target.value)
    if rule is Rule.MISSING:
        return math.nan if target is Target.FLOAT else None
    return _in_range(_VALUES[target](value), spec, target, kind)


def holds(dtype: str | np.dtype[Any], number: int) -> bool:
    """Return True if a whole number is at most 2^53, or one that a dtype of floats holds."""
    if abs(number) <= EXACT:
        return True
    with np.errstate(over="ignore"):
        rounded = float(np.array(_float(number)).astype(dtype))
    return math.isfinite(rounded) and int(rounded) == number


def unrounded(dtype: str | np.dtype[Any]) -> str:
    """Return what is expected in the place of a whole number that a dtype of floats does not hold."""
    return f"a number that {dtype} holds, as a whole number beyond 2^53 of a typed array is not rounded"


def read_number(text: str) -> Any:
    """Return the number, or truth value, that a text is: a bool, int, float or Decimal; None if it is neither."""
    text = text.strip()
    if (truth := _BOOLS.get(text.lower())) is not None:
        return truth
    if len(text) > _MOST_DIGITS or not _NUMBER.fullmatch(text):
        return None
    if text.lstrip("+-").isdigit():
        return int(text)
    return Decimal(text) if text[-1].isdigit() or text[-1] == "." else float(text)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        if problem := utf8.fault(bytes(value)):
            raise Refused(f"a text in UTF-8 ({problem})")
        return bytes(value).decode()
    if isinstance(value, (float, np.floating)):
        # The library refuses them, too: 1.0 is another category than 1.
        raise Refused(Target.CODES.value)
    return str(int(value))


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _truth(value: Any) -> bool:
    if value not in (0, 1):
        raise Refused(Target.BOOL.value)
    return bool(value)


_VALUES: Mapping[Target, Any] = {
    Target.FLOAT: _float,
    Target.WHOLE: int,
    Target.BOOL: _truth,
    Target.TEXT: _text,
    Target.CODES: _text,
}


def _in_range(value: Any, spec: TensorSpec, target: Target, kind: Kind) -> Any:
    """Return a value that the dtype of the input holds."""
    if target is Target.WHOLE:
        limits = np.iinfo(spec.dtype)
        if not limits.min <= value <= limits.max:
            raise Refused(f"a whole number from {limits.min} to {limits.max} ({spec.dtype})")
    elif target is Target.FLOAT and kind is not Kind.INFINITE and abs(value) > float(np.finfo(spec.dtype).max):
        raise Refused(f"a number of at most {np.finfo(spec.dtype).max:.3g} ({spec.dtype})")
    return value
