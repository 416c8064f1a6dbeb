"""Wrong requests that follow from an OpenAPI document: one field of a body, or one parameter, is wrong in each."""

import copy
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import jsonschema

SAMPLES = (None, True, -1, 1.5, 10**20, "", "other", [[]], {"other": 1})
"""Values of all types of JSON; those that the schema of a field allows are left out."""

TEXTS = ("", "other", "-1", "9" * 20)
"""Values of headers and of parameters of a query."""

IDS = ("%00", "%FF%C3%28", "%2E%2E%2F%2E%2E", "{name}%F0%9F%92%A5%0A", "a" * 4000)
"""Parts of paths that name nothing, as they are in a URL."""

SURPLUS = "surplus"
"""Name of a field that no schema has."""

Schema = dict[str, Any]
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Case:
    """A wrong request.

    Attributes:
        what: What is wrong with it.
        names: Names of the field that is wrong and of those around it, of which an error has one.
        sent: Arguments of httpx.
    """

    what: str
    names: tuple[str, ...]
    sent: dict[str, Any] = field(hash=False)


def cases(document: Schema, operation: Schema, example: Any = None) -> Iterator[Case]:
    """Yield the wrong requests of an operation; the body of `example` is right."""
    body = {} if example is None else {"json": example}
    for parameter in operation.get("parameters", ()):
        parameter = _resolved(document, parameter)
        check = _validator(document, parameter["schema"])
        name, place = parameter["name"], {"header": "headers", "query": "params"}.get(parameter["in"])
        for text in TEXTS if place else ():
            if not any(map(check.is_valid, _readings(text))):
                yield Case(f"{name} is {text!r}", (name,), {**body, place: {name: text}})
    if example is not None:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        for what, names, wrong in bodies(document, schema, example):
            yield Case(what, names, {"json": wrong})


def paths(path: str, known: Mapping[str, str]) -> Iterator[str]:
    """Yield the path with an id that names nothing in the place of each parameter, and `known` ones in the others."""
    for name in known:
        for value in IDS if f"{{{name}}}" in path else ():
            others = known | {name: value}
            yield re.sub(r"\{(\w+)\}", lambda found, others=others: others[found[1]], path)  # type: ignore[misc]


def bodies(document: Schema, schema: Schema, example: Any) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Yield what is wrong, the names of `Case`, and a body that differs from the example in one field."""
    check = _validator(document, schema)
    check.validate(example)
    seen = set()
    for path in _fields(document, schema, example):
        place = "/".join(map(str, path))
        changes = [(f"{place} is {value!r}", path, _with(example, path, value)) for value in SAMPLES]
        changes.append((f"{place} has a surplus field", (*path, SURPLUS), _with(example, (*path, SURPLUS), 1)))
        if path:
            changes.append((f"{place} is missing", path, _without(example, path)))
        for what, wrong_path, wrong in changes:
            # httpx sends no body for None.
            if wrong is not None and repr(wrong) not in seen and not check.is_valid(wrong):
                seen.add(repr(wrong))
                yield what, tuple(name for name in wrong_path if isinstance(name, str)), wrong


def _fields(document: Schema, schema: Schema, example: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of the fields that the schema knows, also of those that the example lacks."""
    yield path
    for each in _alternatives(document, schema):
        known = each.get("properties", {})
        if isinstance(example, dict):
            others = example.keys() - known if isinstance(each.get("additionalProperties"), dict) else ()
            for name in (*known, *others):
                inner = known.get(name) or each["additionalProperties"]
                if name in example:
                    yield from _fields(document, inner, example[name], (*path, name))
                else:
                    yield *path, name
        elif isinstance(example, list) and example and "items" in each:
            yield from _fields(document, each["items"], example[0], (*path, 0))


def _alternatives(document: Schema, schema: Schema) -> Iterator[Schema]:
    schema = _resolved(document, schema)
    yield schema
    for each in schema.get("oneOf", ()):
        yield from _alternatives(document, each)


def _readings(text: str) -> Iterator[Any]:
    yield text
    with suppress(ValueError):
        yield float(text)


def _validator(document: Schema, schema: Schema) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({**schema, "components": document["components"]})


def _with(example: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    first, *rest = path
    changed = copy.copy(example)
    if isinstance(changed, list) and isinstance(first, int):
        changed[first] = _with(changed[first], tuple(rest), value)
    elif isinstance(changed, dict):
        changed[first] = _with(changed.get(first), tuple(rest), value)
    return changed


def _without(example: Any, path: Path) -> Any:
    *inner, last = path
    changed = at = copy.deepcopy(example)
    for each in inner:
        at = at[each]
    if isinstance(at, list) or last in at:
        del at[last]
    return changed


def _resolved(document: Schema, schema: Schema) -> Schema:
    while "$ref" in schema:
        found = document
        for name in schema["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        schema = found
    return schema
