"""Protobuf messages as text, such as Triton's `config.pbtxt`: read without their definition."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

_TOKEN = re.compile(r"""#[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[][{}<>:,;"']|[^][{}<>:,;"'#\s]+""")
_MARKS = frozenset("[]{}<>:,;\"'")
_CLOSING = {"{": "}", "<": ">"}
_LIST, _END = ("[",), "]"
_WORD = re.compile(r"[A-Za-z_][\w.]*|-(inf|infinity|nan)", re.IGNORECASE)
_WHOLE = re.compile(r"-?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9]\d*)")
_FLOAT = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fF]?")
_TRUTH = {"true": True, "True": True, "t": True, "false": False, "False": False, "f": False}
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_MARK = re.compile(r"\\.|\"")
_ESCAPED = dict(zip(b"abfnrtv", b"\a\b\f\n\r\t\v", strict=True))

Message = dict[str, list[Any]]
"""Name of a field → its values: numbers, texts, names of an enumeration, truth values or messages."""


def parse(text: str) -> Message:
    """Read a message; raise `ValueError` if the text is not a message."""
    tokens = iter([*_joined(token for token in _TOKEN.findall(text) if not token.startswith("#"))])
    try:
        return _message(tokens, "")
    except RecursionError as error:
        raise ValueError(f"it cannot be read: {error}") from None


def one(message: Message, name: str) -> Any:
    """Return the last value of a field, as protobuf does; None without one."""
    return message[name][-1] if message.get(name) else None


def _message(tokens: Iterator[str], end: str) -> Message:
    fields: Message = {}
    while (name := next(tokens, "")) != end:
        if name == "[":
            # A message of a kind that its URL names, or an extension; the name may have several tokens.
            name = "[" + "".join(iter(lambda: next(tokens, _END), _END)) + _END
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
    return [_scalar(token)]


def _scalar(token: str) -> Any:
    if _is_text(token):
        return _unescaped(token[1:-1])
    if _WHOLE.fullmatch(token):
        sign, digits = (-1, token[1:]) if token.startswith("-") else (1, token)
        return sign * int(
            digits, 16 if digits[1:2] in ("x", "X") else 8 if len(digits) > 1 and digits[0] == "0" else 10
        )
    if _FLOAT.fullmatch(token):
        return float(token.rstrip("fF"))
    if _WORD.fullmatch(token):
        return float(token) if token.startswith("-") else _TRUTH.get(token, token)
    raise ValueError(f"it has {token!r} in the place of a value")


def _is_text(token: str) -> bool:
    return len(token) > 1 and token[0] in "\"'"


def _joined(tokens: Iterable[str]) -> Iterator[str]:
    """Yield the tokens, texts that follow each other as one."""
    text: str | None = None
    for token in tokens:
        if _is_text(token):
            text = (text or "") + (_MARK.sub(_as_escape, token[1:-1]))
            continue
        if text is not None:
            yield f'"{text}"'
            text = None
        yield token
    if text is not None:
        yield f'"{text}"'


def _as_escape(match: re.Match[str]) -> str:
    """Return an escape as it is, and the mark of a text as one: texts of either mark are joined."""
    return '\\"' if match[0] == '"' else match[0]


def _unescaped(text: str) -> str:
    """Return a text with its characters in place of protobuf's escapes: bytes in octal or hexadecimal, and others."""

    def plain(match: re.Match[bytes]) -> bytes:
        octal, hexadecimal, short, long, other = match.groups()
        if octal or hexadecimal:
            return bytes([int(octal, 8) & 255 if octal else int(hexadecimal, 16)])
        if short or long:
            return chr(int(short or long, 16)).encode("utf8", "replace")
        return bytes([_ESCAPED.get(other[0], other[0])])

    return _ESCAPE.sub(plain, text.encode("utf8")).decode("utf8", "replace")
