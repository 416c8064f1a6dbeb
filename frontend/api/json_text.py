"""Texts of JSON: reading them, and what reading and writing them costs, for `Offload.run`.

A text that is not JSON raises `InvalidInput`, and one with too many values `RequestTooLarge`.
"""

import codecs
import itertools
import operator
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import orjson

from cluster_serving.frontend.server.offload import LARGE
from cluster_serving.protocol.columns import Columns
from cluster_serving.protocol.errors import InvalidInput, ServingError
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.original.json import check_size
from cluster_serving.protocol.results import Outputs
from cluster_serving.protocol.values import utf8
from cluster_serving.protocol.values.lists import shown

# Costs in units of 5 ns, measured with the slowest bodies that could be found: a byte of text, a value, a list or
# object of its own, and a name, which becomes an instance, or an Arrow column.
_BYTE, _VALUE, _LIST, _NAME = 0.5, 16, 200, 2000
_PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM")
_FORM = re.compile(rb"[\w.%+\[\]-]+=")
_NO_NUMBER = re.compile("NaN|-?Infinity")
FILE_IN_INSTANCES = '{"instances": [{"NAME": {"b64": "…"}}]}'
"""Body with the content of a file in base64, for errors of the paths that take instances."""

_CHEAP = 2048
"""Bytes of text that cost less than `LARGE` even if they are all names, of 5 bytes each."""
_FEW_VALUES = 1 << 16
"""Bytes of text that have too few values to count."""


# Costs in plain bytes of 5 ns, measured: a byte of numbers, a list of them, an element that Python writes, a class of a
# ranking, and a class or a number of a filter in the texts of the original; their other numbers take a third at most.
_NUMBER_BYTE, _NUMBER_LIST, _ELEMENT, _CLASS, _TEXT_NUMBER = 2, 60, 100, 40, 320


def reading_cost(text: bytes) -> int:
    """Return the cost of reading and converting a text: that of its bytes and its values.

    Texts of `LARGE` bytes or more cost that, however simple they are: several at once would hold up other requests.
    """
    if len(text) >= LARGE:
        # Counting would take milliseconds.
        return len(text)
    plain = int(_BYTE * len(text))
    if len(text) < _CHEAP:
        return plain
    if len(text) < _FEW_VALUES:
        return plain + _LIST * (text.count(b"[") + text.count(b"{")) + _NAME * text.count(b":")
    # bytes.count takes a millisecond for each of these characters.
    characters = np.frombuffer(text, np.uint8)
    values, lists, objects, names = (int(np.count_nonzero(characters == mark)) for mark in b",[{:")
    return plain + _VALUE * values + _LIST * (lists + objects) + _NAME * names


def writing_cost(outcomes: Iterable[Mapping[str, Array] | Outputs | ServingError], as_texts: bool = False) -> int:
    """Return the cost of writing outputs: as JSON, or `as_texts` of the original."""
    total = 0
    for outcome in [outcomes.arrays] if isinstance(outcomes, Columns) else outcomes:
        if isinstance(outcome, list):
            classes = sum(map(len, outcome))
            total += (_TEXT_NUMBER if as_texts else _CLASS) * classes
        elif isinstance(outcome, Mapping):
            for array in outcome.values():
                if as_texts:
                    total += _TEXT_NUMBER * array.size
                elif array.dtype.kind in "biuf":
                    total += _NUMBER_BYTE * array.nbytes
                    if array.ndim > 1:
                        total += _NUMBER_LIST * sum(itertools.accumulate(array.shape[:-1], operator.mul))
                else:
                    total += _ELEMENT * array.size
    return total


def parse(body: bytes, with_file: str = "") -> dict[str, Any]:
    """Read a JSON object.

    Args:
        body: The text.
        with_file: Body that has the content of a file, for errors; empty for a path that takes no files.
    """
    return as_object(loads(body, with_file))


def loads(body: bytes, with_file: str = "") -> Any:
    """Read JSON; see `parse`."""
    if not body:
        raise InvalidInput("the body is empty; expected a JSON object")
    check_size(body)
    try:
        return orjson.loads(body.removeprefix(codecs.BOM_UTF8))
    except orjson.JSONDecodeError as error:
        problem = _foreign(body, with_file) or _no_number(error) or f"the body is not JSON: {utf8.fault(body) or error}"
        raise InvalidInput(problem) from None


def _foreign(body: bytes, with_file: str) -> str:
    """Return what to send in the place of a picture or a form; empty for anything else."""
    other, is_file = "", True
    if body.startswith(_PICTURES):
        other = "a picture"
    elif body.startswith(b"--") and b"content-disposition: form-data" in body[:1024].lower():
        other = "a form"
    elif _FORM.match(body):
        other, is_file = "a form (name=value)", False
    if not other:
        return ""
    if with_file and is_file:
        return f"the body is {other}, not JSON: send {with_file} with the name of the input and the file in base64"
    return f"the body is {other}; expected a JSON object"


def _no_number(error: orjson.JSONDecodeError) -> str:
    # The position is that behind a sign.
    found = _NO_NUMBER.search(error.doc, max(0, error.pos - 1), error.pos + 9)
    return f"the body has {found[0]}, which is not JSON; send null for a missing value" if found else ""


def as_object(content: Any) -> dict[str, Any]:
    """Return a content that is an object; any other raises `InvalidInput`."""
    if not isinstance(content, dict):
        raise InvalidInput(f"the body is {kind_of(content)}; expected a JSON object")
    return content


def check_names(content: Mapping[str, Any], known: Collection[str], place: str = "the body") -> None:
    """Refuse an object that has other names than `known`: a misspelt field would not be obeyed.

    Fields that say nothing, as clients of Vertex AI send `parameters`, may have any name.
    """
    if unknown := sorted(name for name in content.keys() - known if content[name] not in (None, {})):
        raise InvalidInput(f"{place} has {unknown[0][:64]!r}, which is unknown; expected {', '.join(known)}")


def kind_of(value: Any) -> str:
    """Return the kind of a value of JSON in words, and the value as far as it can be shown."""
    kinds: dict[type, str] = {dict: "an object", list: "a list", str: "a text"}
    return f"{kinds.get(type(value), 'a value')} ({shown(value)})"
