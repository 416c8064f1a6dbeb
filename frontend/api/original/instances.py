"""From the JSON body `{"instances": […]}` to the requests of a job."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from cluster_serving.protocol.errors import InvalidInput, RequestTooLarge
from cluster_serving.protocol.inputs import Input
from cluster_serving.protocol.original.json import check_size, to_input
from cluster_serving.protocol.slots import SlotReport, TensorSpec

Record = dict[str, Input]

EXPECTED = 'expected {"instances": [{"name": value, …}, …]}'

_ANYTHING = TensorSpec("", "", None)


def parse(body: bytes) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        InvalidInput: The body is not one; the message says where it breaks.
        RequestTooLarge: It holds too many values.
    """
    if not body:
        raise InvalidInput("the body is empty; expected a JSON object")
    check_size(body)
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise InvalidInput(f"the body is {_kind(content)}; expected a JSON object")
    return content


def instances_of(content: Mapping[str, Any], most: int) -> list[Any]:
    """The instances of a parsed body.

    Args:
        content: From `parse`.
        most: How many are allowed.

    Raises:
        InvalidInput: There are none.
        RequestTooLarge: There are too many.
    """
    instances = content.get("instances")
    if not isinstance(instances, list):
        found = "has no 'instances'" if instances is None else f"has {_kind(instances)} as 'instances'"
        raise InvalidInput(f"the body {found}; {EXPECTED}")
    if not instances:
        raise InvalidInput(f"'instances' is empty; {EXPECTED}")
    if len(instances) > most:
        raise RequestTooLarge(
            f"the body has {len(instances)} instances; at most {most} are taken (maxInstances, parallelism)"
        )
    return instances


def read(body: bytes, most: int, model: SlotReport | None) -> list[Record | InvalidInput]:
    """Read a body; see `parse`, `instances_of` and `to_records`."""
    return to_records(instances_of(parse(body), most), model)


def read_submission(
    body: bytes, most: int, models: Mapping[str, SlotReport | None]
) -> tuple[dict[str, Any], list[Record | InvalidInput]]:
    """Read a body that may name its model.

    Args:
        body: JSON.
        most: How many instances are allowed.
        models: What they expect, by name; with an empty name the one that is meant if the body names none.

    Returns:
        What the body has beside its instances, and the requests.

    Raises:
        InvalidInput: See `parse` and `instances_of`.
        RequestTooLarge: See there.
    """
    content = parse(body)
    asked = instances_of(content, most)
    name = content.get("model", "")
    records = to_records(asked, models.get(name) if isinstance(name, str) else None)
    return {key: value for key, value in content.items() if key != "instances"}, records


def to_records(instances: Sequence[Any], model: SlotReport | None) -> list[Record | InvalidInput]:
    """Convert instances to what is sent, each on its own.

    Args:
        instances: JSON values.
        model: What the model expects; None if that is not known.

    Returns:
        A request, or what is wrong with the instance, for each.
    """
    specs = model.inputs if model is not None else ()
    return [_record(index, instance, specs) for index, instance in enumerate(instances)]


def _record(index: int, instance: Any, specs: Sequence[TensorSpec]) -> Record | InvalidInput:
    if not isinstance(instance, dict) or not instance:
        return InvalidInput(f'instances[{index}] is {_kind(instance)}; expected {{"name": value, …}}')
    record: Record = {}
    expected = _expected(instance, specs)
    for name, value in instance.items():
        try:
            record[name] = to_input(name, value, expected.get(name, _ANYTHING))
        except InvalidInput as error:
            return type(error)(f"instances[{index}].{name}: {error}")
    return record


def _expected(instance: Mapping[str, Any], specs: Sequence[TensorSpec]) -> dict[str, TensorSpec]:
    """What the model expects under the names of the instance, which it matches by name or else by position."""
    by_name = {spec.name: spec for spec in specs}
    if by_name.keys() == instance.keys():
        return by_name
    return dict(zip(instance, specs, strict=True)) if len(instance) == len(specs) else {}


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", type(None): "null"}
    return f"{kinds.get(type(value), 'a value')} ({reprlib.repr(value)})"
