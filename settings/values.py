"""Types of the values of settings that YAML itself does not have."""

import re
from importlib.metadata import entry_points
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from cluster_serving.protocol.record_key import RecordKey, published_key
from cluster_serving.protocol.values import filters

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)b?", re.IGNORECASE)
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def _size(value: Any) -> Any:
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    return int(match[1]) << 10 * _UNITS[match[2].lower()] if match else value


def _tuple(value: Any) -> Any:
    # A strict model takes no list where its type is a tuple.
    return tuple(_tuple(item) for item in value) if isinstance(value, list) else value


def _names(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return _tuple(value)


def _mapping(value: Any) -> Any:
    return {} if value == "" else value


def _pair(value: Any) -> Any:
    if isinstance(value, str):
        if not value.strip():
            return None
        value = [int(part) if part.strip().isdecimal() else part for part in value.split(",")]
    return _tuple(value)


def _channels(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = [value]
    if isinstance(value, list) and len(value) not in (1, 3):
        raise ValueError(f"{len(value)} numbers")
    return _tuple(value)


def _not_zero(value: tuple[float, ...]) -> tuple[float, ...]:
    if 0 in value:
        raise ValueError("0 cannot divide")
    return value


def _cores(value: Any) -> Any:
    # -1 is the original's value for "not set".
    return None if value == -1 else value


def _secret_and_salt(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    secret, _, salt = value.rpartition(":")
    if value and not (secret and salt):
        raise ValueError("not two texts")
    return (secret, salt) if value else None


def _record_key(value: Any) -> Any:
    if value == "published":
        return published_key()
    pair = _secret_and_salt(value)
    return RecordKey(*pair) if isinstance(pair, tuple) else pair


def _folder(value: Any) -> Any:
    return ("tensorboard" if value else "") if isinstance(value, bool) else value


def _filter(text: str) -> str:
    if text:
        filters.parse(text, {entry.name for entry in entry_points(group=filters.GROUP)})
    return text.strip()


Size = Annotated[int, BeforeValidator(_size)]
"""Bytes, written as a number with or without one of the units k, m, g and t (of 1024)."""

Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
"""Names, written as a list or separated by commas."""

Pair = Annotated[tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] | None, BeforeValidator(_pair)]
"""Two whole numbers of at least 1, written as "a,b" or [a, b]; empty for none."""

Channels = Annotated[tuple[float, ...], BeforeValidator(_channels)]
"""One number for all channels of an image, or three; written as a list or a single number."""

Divisors = Annotated[Channels, AfterValidator(_not_zero)]
"""Channels, none of which is 0."""

Padding = Annotated[dict[str, int | float], BeforeValidator(_mapping)]
"""Names with a number each; empty for none."""

Shapes = Annotated[tuple[tuple[int, ...], ...], BeforeValidator(_tuple)]
"""Shapes, written as a list of lists."""

RecordKeyText = Annotated[RecordKey | None, BeforeValidator(_record_key)]
"""Secret and salt of a key for records, written as "secret:salt"; or `published`, or empty for none."""

Cores = Annotated[int | None, BeforeValidator(_cores)]
"""A number of cores; empty, or -1 as in the original, for none."""

SecretAndSalt = Annotated[tuple[str, str] | None, BeforeValidator(_secret_and_salt)]
"""Two texts, written as "secret:salt"; or empty for none."""

Folder = Annotated[str, BeforeValidator(_folder)]
"""The path of the folder for TensorBoard, or true for the usual one; empty or false for none."""

Filter = Annotated[str, AfterValidator(_filter)]
"""Filters as `protocol.values.filters.parse` reads them, or nothing."""
