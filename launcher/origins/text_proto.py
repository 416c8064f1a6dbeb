"""Protobuf messages as text, such as Triton's `config.pbtxt`: read without their definition."""

import re
from collections.abc import Iterator
from typing import Any

import yaml

_TOKEN = re.compile(r"""#[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[][{}<>:,;"']|[^][{}<>:,;"'#\s]+""")
_SCALAR = re.compile(r"""[\w.+"'-]""")
_MARKS = frozenset("[]{}<>:,;\"'")
_CLOSING = {"{": "}", "<": ">"}
_LIST, _END = ("[",), "]"

Message = dict[str, list[Any]]
"""Name of a field → its values: numbers, texts, names of an enumeration, truth values or messages."""


def parse(text: str) -> Message:
    """Read a message; raise `ValueError` if the text is none."""
    tokens = iter([token for token in _TOKEN.findall(text) if not token.startswith("#")])
    try:
        return _message(tokens, "")
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"it cannot be read: {error}") from None


def one(message: Message, name: str) -> Any:
    """Return the last value of a field, as protobuf does; None without one."""
    return message[name][-1] if message.get(name) else None


def _message(tokens: Iterator[str], end: str) -> Message:
    fields: Message = {}
    while (name := next(tokens, "")) != end:
        if name in _MARKS - {",", ";"} or not name:
            raise ValueError(f"it has {name!r} in the place of a name" if name else f"it ends without {end}")
        if name not in _MARKS:
            value = next(tokens, "")
            fields.setdefault(name, []).extend(_values(next(tokens, "") if value == ":" else value, tokens))
    return fields


def _values(token: str, tokens: Iterator[str]) -> list[Any]:
    if token in _CLOSING:
        return [_message(tokens, _CLOSING[token])]
    if token in _LIST:
        found: list[Any] = []
        while (item := next(tokens, "")) != _END:
            if item != ",":
                found += _values(item, tokens)
        return found
    if not _SCALAR.match(token) or token in _MARKS:
        raise ValueError(f"it has {token!r} in the place of a value")
    # Numbers, quoted texts and words are written as in YAML.
    return [yaml.safe_load(token)]
