"""The error for a value that is not a category of an input."""

from collections.abc import Sequence
from typing import Any

from cluster_serving.protocol.errors import InvalidInput

_MOST_NAMED = 10


def not_a_category(name: str, value: Any, categories: Sequence[Any], at: int | None = None) -> InvalidInput:
    """Return the error for a value that is not a category of an input, or of its column `at`."""
    where = f"input {name!r}" if at is None else f"value {at} of input {name!r}"
    return InvalidInput(f"{where} is {value!r}, which is not one of its categories: {shown(categories)}")


def shown(categories: Sequence[Any]) -> str:
    """Return categories as messages show them."""
    return ", ".join(map(repr, categories[:_MOST_NAMED])) + ", …" * (len(categories) > _MOST_NAMED)
