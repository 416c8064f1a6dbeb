"""Protobuf's wire format: messages as dicts from field number to values, where no generated code is at hand."""

from __future__ import annotations

import struct
from collections.abc import Iterator

Fields = dict[int, list["int | bytes"]]
"""Field number → its values, in order: varints as int; the others, of fixed size or length-delimited, as bytes."""


def fields(data: bytes) -> Fields:
    """Split a message into its fields.

    Raises:
        ValueError: It is no message.
    """
    result: Fields = {}
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind = key & 7
        value: int | bytes
        if kind == 0:
            value, position = _varint(data, position)
        else:
            size = {1: 8, 5: 4}.get(kind)
            if size is None:
                if kind != 2:
                    raise ValueError("it is no protobuf message")
                size, position = _varint(data, position)
            if position + size > len(data):
                raise ValueError("it ends too early")
            value, position = data[position : position + size], position + size
        result.setdefault(key >> 3, []).append(value)
    return result


def message(parent: Fields, number: int) -> Fields | None:
    """The message in a field, if there is one; of several the last one counts."""
    values = messages(parent, number)
    return values[-1] if values else None


def messages(parent: Fields, number: int) -> list[Fields]:
    """The messages in a repeated field."""
    return [fields(value) for value in parent.get(number, []) if isinstance(value, bytes)]


def texts(parent: Fields, number: int) -> list[str]:
    """The strings in a repeated field."""
    return [value.decode("utf-8") for value in parent.get(number, []) if isinstance(value, bytes)]


def text(parent: Fields, number: int) -> str:
    """The string in a field; empty if there is none."""
    return (texts(parent, number) or [""])[-1]


def integers(parent: Fields, number: int) -> list[int]:
    """The signed numbers in a repeated field, packed or not."""
    return [value - (1 << 64) if value >> 63 else value for value in _varints(parent.get(number, []))]


def integer(parent: Fields, number: int) -> int:
    """The signed number (or enum, or bool) in a field; 0 if there is none."""
    return (integers(parent, number) or [0])[-1]


def real(parent: Fields, number: int) -> float:
    """The float or double in a field; 0 if there is none."""
    value = parent.get(number, [b""])[-1]
    if not isinstance(value, bytes) or not value:
        return 0.0
    return float(struct.unpack("<f" if len(value) == 4 else "<d", value)[0])


def packed(parent: Fields, number: int) -> bytes:
    """The bytes of the numbers of fixed size in a repeated field, packed or not."""
    return b"".join(value for value in parent.get(number, []) if isinstance(value, bytes))


def _varints(values: list[int | bytes]) -> Iterator[int]:
    for value in values:
        if isinstance(value, int):
            yield value
            continue
        position = 0
        while position < len(value):
            number, position = _varint(value, position)
            yield number


def _varint(data: bytes, position: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise ValueError("it ends too early")
        byte = data[position]
        position += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result & (1 << 64) - 1, position
    raise ValueError("it is no protobuf message")
