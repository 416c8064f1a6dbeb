"""The JSON body `{"instances": […]}`, and its conversion to requests of a job.

A body of another form raises `InvalidInput`; one with too many values or instances, `RequestTooLarge`.
"""

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
    """Read a JSON object."""
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
    """Return the instances of a body that `parse` has read, of which there may be `most`."""
    instances = content.get("instances")
    if not isinstance(instances, list):
        problem = "has no 'instances'" if instances is None else f"has {_kind(instances)} as 'instances'"
        raise InvalidInput(f"the body {problem}; {EXPECTED}")
    if not instances:
        raise InvalidInput(f"'instances' is empty; {EXPECTED}")
    if len(instances) > most:
        raise RequestTooLarge(
            f"the body has {len(instances)} instances; at most {most} are taken (maxInstances, parallelism)"
        )
    return instances


def read(body: bytes, most: int, model: SlotReport | None) -> list[Record | InvalidInput]:
    """Read the requests of a body."""
    return to_records(instances_of(parse(body), most), model)


def read_submission(
    body: bytes, most: int, models: Mapping[str, SlotReport | None]
) -> tuple[dict[str, Any], list[Record | InvalidInput]]:
    """Read a body that may name its model.

    `models` has the report of each model by name; the empty name is the default model's.

    Returns:
        The fields of the body without its instances, and the requests.
    """
    content = parse(body)
    instances = instances_of(content, most)
    del content["instances"]
    name = content.get("model", "")
    return content, to_records(instances, models.get(name) if isinstance(name, str) else None)


def to_records(instances: Sequence[Any], model: SlotReport | None) -> list[Record | InvalidInput]:
    """Convert each instance to a request of its own, or to its error; without `model`, its inputs are unknown."""
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
    """Return the input of the model for each name of the instance, by name, or else by position."""
    by_name = {spec.name: spec for spec in specs}
    if by_name.keys() == instance.keys():
        return by_name
    return dict(zip(instance, specs, strict=True)) if len(instance) == len(specs) else {}


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", type(None): "null"}
    return f"{kinds.get(type(value), 'a value')} ({reprlib.repr(value)})"
