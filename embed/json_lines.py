"""Lines of JSON as columns, whose types are those of all lines: texts stay texts, and numbers keep their digits."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.json

from cluster_serving.protocol.errors import InvalidInput

Columns = dict[str, Any]
"""A column of Arrow, or a list of Python's values where those differ in type."""

Types = dict[str, "pa.DataType | None"]
"""Type of each column; None if its values have no type in common."""

_BLOCK = 4 << 20
_SHOWN = 80
_MARK = b"\xef\xbb\xbf"
_ROWS = 8192
_EXACT = 1 << 53
_LARGE = pa.uint64()
"""Stands for whole numbers of 64 bits that float64 rounds. Lines that pyarrow reads have none."""

_ODD = (re.compile(rb"\n[ \t]*[^{\s]"), re.compile(rb"\}[ \t]*[^\s,}\]]"))
"""Lines that are not one object, which pyarrow misreads: two objects become two rows.

They are two expressions, as each then begins with a letter that is looked for quickly.
"""

_DEEP, _MANY_BRACKETS = re.compile(rb"([\]}]\s*){64}"), 500
"""Brackets in brackets, which Python's reader counts. The expression is slow: lines with few brackets are left out."""

_MANY_DIGITS = re.compile(rb"[\[:,\-\s]\d{16}")
"""A whole number that pyarrow may round."""


class _Mixed(Exception):
    """Values have no type in common."""


def types_of(blocks: Iterable[bytes]) -> Types:
    """Return the types of the columns of all lines; lines that are not JSON count for none.

    Raises:
        InvalidInput: If the file is an array of JSON.
    """
    found: Types = {}
    for number, block in enumerate(blocks):
        if number == 0 and block.lstrip().startswith(b"["):
            raise InvalidInput("the file is an array; expected a line for each row, as jq -c '.[]' writes them")
        for name, kind in _types_of_block(block).items():
            found[name] = _common(found[name], kind) if name in found else kind
    return {name: _final(kind) for name, kind in found.items()}


def columns_of(block: bytes, types: Types) -> Iterator[Columns | str]:
    """Yield a row for each line; for a line that cannot be read, a text that says why."""
    if None not in types.values():
        table = _table(block, pa.schema(list(types.items())))
        if table is not None:
            for batch in table.to_batches(_ROWS):
                yield dict(zip(batch.schema.names, batch.columns, strict=True))
            return
    rows: list[Mapping[str, Any]] = []
    for row in _rows(block):
        if isinstance(row, str) or len(rows) == _ROWS:
            yield from _columns(rows, types)
            rows = []
        if isinstance(row, str):
            yield row
        else:
            rows.append(row)
    yield from _columns(rows, types)


def blocks_of(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield whole lines, some megabytes at a time, of what a function reads."""
    rest = b""
    if (block := read(_BLOCK)).startswith(_MARK):
        block = block[len(_MARK) :]
    while block:
        lines, _, rest = (rest + block).rpartition(b"\n")
        if lines.strip():
            yield lines
        block = read(_BLOCK)
    if rest.strip():
        yield rest


def text_of(value: Any) -> str | None:
    """Return a value of a column whose values differ in type: JSON, or None."""
    return None if value is None else json.dumps(value, ensure_ascii=False)


def _types_of_block(block: bytes) -> Types:
    table = None if _MANY_DIGITS.search(block) else _table(block, None)
    if table is not None:
        return {field.name: _mapped(field.type, _text_or_type) for field in table.schema}
    found: Types = {}
    for row in _rows(block):
        for name, value in row.items() if isinstance(row, dict) else ():
            kind = _type_of_column(value)
            found[name] = _common(found[name], kind) if name in found else kind
    return found


def _table(block: bytes, schema: pa.Schema | None) -> pa.Table | None:
    """Return lines as pyarrow reads them; None if it refuses them, or may misread them."""
    if block.lstrip()[:1] != b"{" or any(odd.search(block) for odd in _ODD) or _is_deep(block):
        return None
    read = pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    others = "infer" if schema is None else "ignore"
    parse = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=others)
    try:
        block.decode()
        return pyarrow.json.read_json(pa.BufferReader(block), read, parse)
    except (pa.ArrowException, UnicodeDecodeError):
        return None


def _is_deep(block: bytes) -> bool:
    lines = (line for line in block.split(b"\n") if line.count(b"}") + line.count(b"]") > _MANY_BRACKETS)
    return any(_DEEP.search(line) for line in lines)


def _rows(block: bytes) -> Iterator[dict[str, Any] | str]:
    for line in block.split(b"\n"):
        if line.strip():
            yield _row(line)


def _row(line: bytes) -> dict[str, Any] | str:
    """Return the values of a line, or why it has none."""
    try:
        row = json.loads(line.decode(), object_pairs_hook=_object, parse_float=_float)
        if isinstance(row, dict):
            if b"\\u" in line:
                # Half of a pair of surrogates is no text.
                json.dumps(row, ensure_ascii=False).encode()
            return row
        reason = "expected an object"
    except RecursionError:
        reason = "too many brackets"
    except ValueError as error:
        reason = str(error)
    return f"the line cannot be read: {reason}: {line[:_SHOWN].decode('utf8', 'replace')}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is there twice")
    return found


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:_SHOWN]} is beyond float64")
    return number


def _type_of_column(value: Any) -> pa.DataType | None:
    try:
        return _type_of(value)
    except _Mixed:
        return None


def _type_of(value: Any) -> pa.DataType:
    if isinstance(value, dict):
        return pa.struct([(name, _type_of(item)) for name, item in value.items()])
    if isinstance(value, list):
        kind = pa.null()
        for item in value:
            kind = _joined(kind, _type_of(item))
        return pa.list_(kind)
    if isinstance(value, int) and not isinstance(value, bool):
        if not -(1 << 63) <= value < 1 << 63:
            raise _Mixed
        return pa.int64() if abs(value) <= _EXACT else _LARGE
    return _SCALARS[type(value)]


_SCALARS = {type(None): pa.null(), bool: pa.bool_(), float: pa.float64(), str: pa.string()}


def _common(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    """Return the type of a column that has values of both types; None if there is none."""
    try:
        return None if one is None or other is None else _joined(one, other)
    except _Mixed:
        return None


def _joined(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if {one, other} in ({pa.int64(), _LARGE}, {pa.int64(), pa.float64()}):
        return _LARGE if _LARGE in (one, other) else pa.float64()
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_joined(one.value_type, other.value_type))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = _joined(fields.get(field.name, pa.null()), field.type)
        return pa.struct([*fields.items()])
    raise _Mixed


def _mapped(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type whose scalars are changed."""
    if pa.types.is_list(kind):
        return pa.list_(_mapped(kind.value_type, change))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _mapped(field.type, change)) for field in kind])
    return change(kind)


def _text_or_type(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _final(kind: pa.DataType | None) -> pa.DataType | None:
    """Return the type that is written: Parquet has no type for objects without fields."""
    if kind is None or "struct<>" in str(kind):
        return None
    return _mapped(kind, lambda scalar: pa.int64() if scalar == _LARGE else scalar)


def _columns(rows: Sequence[Mapping[str, Any]], types: Types) -> Iterator[Columns]:
    if rows:
        values = {name: [row.get(name) for row in rows] for name in types}
        yield {
            name: column if types[name] is None else pa.array(column, types[name]) for name, column in values.items()
        }
