"""Texts that a regular expression matches: a model may make something else of them than of others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

_TIMES = 3
"""Most repetitions, unless more are asked for."""

_MOST_CHARACTERS = 256
_LETTERS = "a0 _-.:/@,;A"
"""Characters to choose from, for classes that are told by what is not in them."""

_CLASSES = {
    "CATEGORY_DIGIT": "7",
    "CATEGORY_NOT_DIGIT": "a",
    "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_SPACE": "a",
    "CATEGORY_WORD": "a",
    "CATEGORY_NOT_WORD": "-",
}


def examples(pattern: str) -> list[str]:
    """Return up to two texts that a pattern matches, with the fewest repetitions and with some.

    Args:
        pattern: A regular expression, as that of RE2. There is no text for one that Python cannot read.
    """
    with suppress(re.error, ImportError, RecursionError, OverflowError):
        tokens = _parser().parse(pattern)
        found = dict.fromkeys(_example(tokens, times) for times in (1, _TIMES))
        return [text for text in found if len(text) <= _MOST_CHARACTERS]
    return []


def _parser() -> Any:
    """Return Python's own parser of expressions."""
    try:
        return import_module("re._parser")
    except ImportError:
        # Python 3.10
        return import_module("sre_parse")


def _example(tokens: Sequence[Any], times: int) -> str:
    return "".join(_one(str(kind), value, times) for kind, value in tokens)


def _one(kind: str, value: Any, times: int) -> str:
    if kind == "LITERAL":
        return chr(int(value))
    if kind == "ANY":
        return "a"
    if kind in ("IN", "NOT_LITERAL"):
        excluded = [("NEGATE", None), ("LITERAL", value)]
        return _character(value if kind == "IN" else excluded)
    if kind == "BRANCH":
        choices = value[1]
        return _example(choices[0 if times == 1 else -1], times)
    if kind in ("SUBPATTERN", "ATOMIC_GROUP"):
        return _example(value[-1] if kind == "SUBPATTERN" else value, times)
    if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, most, inner = value
        count = max(int(least), min(times, int(most)))
        return _example(inner, times) * min(count, _MOST_CHARACTERS)
    # Places, such as the end, have no characters.
    return ""


def _character(choices: Sequence[Any]) -> str:
    """Return a character of a class."""
    kinds = [(str(kind), value) for kind, value in choices]
    if kinds[0][0] == "NEGATE":
        kinds = kinds[1:]
        return next((one for one in _LETTERS if not any(_has(kind, value, one) for kind, value in kinds)), "")
    kind, value = kinds[0]
    return _CLASSES.get(str(value), "") if kind == "CATEGORY" else chr(int(value[0] if kind == "RANGE" else value))


def _has(kind: str, value: Any, character: str) -> bool:
    if kind == "RANGE":
        return bool(value[0] <= ord(character) <= value[1])
    if kind == "CATEGORY":
        words = {"DIGIT": character.isdigit(), "SPACE": character.isspace(), "WORD": character.isalnum()}
        name = str(value).removeprefix("CATEGORY_")
        return words.get(name.removeprefix("NOT_"), False) != name.startswith("NOT_")
    return bool(value == ord(character))
