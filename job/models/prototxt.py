"""Protobuf text format, as far as a Caffe network uses it."""

from __future__ import annotations

import re

Message = dict[str, list["Message | str"]]
"""Field → its values, in order: messages, or the text of a number, name or string."""

_TOKEN = re.compile(
    r"""\s+|[#][^\n]*|(?P<part>[{}:<>\[\],;]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s{}:<>\[\],;#"']+)"""
)


def parse(text: str) -> Message:
    """Read a message.

    Raises:
        ValueError: It is not in text format; the message has the line.
    """
    parts: list[tuple[str, int]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"line {text.count(chr(10), 0, position) + 1} is not in protobuf text format")
        if match["part"]:
            parts.append((match["part"], position))
        position = match.end()
    root: Message = {}
    stack = [root]
    name, in_list = "", False
    for part, start in parts:
        line = text.count("\n", 0, start) + 1
        if part in ("{", "<"):
            message: Message = {}
            if not name:
                raise ValueError(f"line {line}: a message without a name")
            stack[-1].setdefault(name, []).append(message)
            stack.append(message)
            name = ""
        elif part in ("}", ">"):
            if len(stack) == 1 or name:
                raise ValueError(f"line {line}: {part!r} is not expected here")
            stack.pop()
        elif part in ("[", "]"):
            in_list = part == "["
            name = name if in_list else ""
        elif part in (":", ",", ";"):
            pass
        elif name:
            stack[-1].setdefault(name, []).append(part.strip("\"'"))
            name = name if in_list else ""
        else:
            name = part
    if len(stack) > 1 or name:
        raise ValueError("it ends too early")
    return root
