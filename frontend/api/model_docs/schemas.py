"""JSON schemas of the inputs and outputs of a model, in the JSON of each protocol."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cluster_serving.frontend.api.v2 import datatypes
from cluster_serving.protocol.slots import TensorSpec, type_text

Schema = dict[str, Any]

_FORMATS = {"float32": "float", "float64": "double"}
"""Names of the OpenAPI Initiative's registry of formats; dtypes of integers have their own names there."""

_IMAGE: Schema = {"$ref": "#/components/schemas/Image"}
_ANY_INPUT: Schema = {"$ref": "#/components/schemas/Value"}


def record(fields: Mapping[str, Schema]) -> Schema:
    """Return the schema of an object with a value for each name."""
    return {"type": "object", "required": [*fields], "properties": dict(fields), "additionalProperties": False}


def listed(schema: Schema) -> Schema:
    """Return the schema of a list that is not empty."""
    return {"type": "array", "items": schema, "minItems": 1}


def one_of(schemas: list[Schema]) -> Schema:
    """Return the schema of a choice of schemas; of one, the schema itself."""
    return {"oneOf": schemas} if len(schemas) > 1 else schemas[0]


def of_input(spec: TensorSpec, batched: bool = False) -> Schema:
    """Return the schema of the value of an input in a record, `batched` or not."""
    shape = spec.shape if batched else spec.record_shape
    if shape is None:
        return _ANY_INPUT | _about(spec.dtype, shape)
    tensor = _nested(_taken(spec.dtype), shape, 1) | _about(spec.dtype, shape)
    if spec.dtype == "str" and shape == (None,):
        # One text is a list of it.
        return {"oneOf": [tensor, _element("str")]}
    return {"oneOf": [tensor, _IMAGE]} if image_size(spec) else tensor


def of_output(spec: TensorSpec, batched: bool = False) -> Schema:
    """Return the schema of the value of an output in an answer, `batched` or not."""
    shape = spec.shape if batched else spec.record_shape
    # A text of a handler may be a JSON document.
    if shape is None or (spec.dtype == "str" and not shape):
        return _about(spec.dtype, shape)
    return _nested(_answered(spec.dtype), shape, 0) | _about(spec.dtype, shape)


def ranking() -> Schema:
    """Return the schema of an output that `topN` has filtered."""
    return {"type": "array", "items": record({"class": {"type": "integer"}, "prob": {"type": ["number", "null"]}})}


def v2_inputs(spec: TensorSpec) -> list[Schema]:
    """Return the schemas of the forms of an input in v2: its tensor, or image files."""
    tensor = _v2_tensor(spec, _taken(spec.dtype), list(datatypes.INPUTS), least=1)
    return [tensor, _v2_images(spec.name)] if image_size(spec) else [tensor]


def v2_output(specs: Sequence[TensorSpec]) -> Schema:
    """Return the schema of any of the outputs in v2.

    It is one schema, not a choice: clients in Go cannot tell tensors apart that differ in constants alone.
    """
    known = [*datatypes.DTYPES, datatypes.BYTES]
    first, *others = (_v2_tensor(spec, _answered(spec.dtype), known, least=0) for spec in specs)
    if not others:
        return first
    fields = [tensor["properties"] for tensor in (first, *others)]
    elements = [each["data"]["items"] for each in fields]
    types = {value for each in fields for value in each["datatype"].get("enum", [each["datatype"].get("const")])}
    merged = {
        "name": {"type": "string", "enum": [spec.name for spec in specs]},
        "datatype": {"type": "string", "enum": sorted(types)},
        "shape": _sizes(None, 0),
        "data": {"type": "array", "items": elements[0] if all(each == elements[0] for each in elements) else {}},
    }
    return {**first, "description": ", ".join(map(str, specs)), "properties": {**first["properties"], **merged}}


def image_size(spec: TensorSpec) -> tuple[int | None, int | None] | None:
    """Return width and height of the images that an input may get; None if it does not look like an image."""
    shape = spec.record_shape
    if shape is None or len(shape) != 3 or spec.dtype == "str":
        return None
    if not np.can_cast(np.uint8, spec.numpy_dtype or np.float32):
        return None
    if shape[0] in (1, 3):
        return shape[2], shape[1]
    return (shape[1], shape[0]) if shape[2] in (1, 3) else None


def _text(value: str) -> Schema:
    """Return the schema of one text; generators of clients tell tensors apart by it if it has a type."""
    return {"type": "string", "const": value}


def _v2_images(name: str) -> Schema:
    return record(
        {
            "name": _text(name),
            "datatype": _text(datatypes.BYTES),
            "shape": {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 1, "maxItems": 1},
            "parameters": {
                "type": "object",
                "required": ["content_type"],
                "properties": {"content_type": _text("base64")},
            },
            "data": listed({"type": "string", "contentEncoding": "base64"}),
        }
    )


def _v2_tensor(spec: TensorSpec, element: Schema, known: list[str], least: int) -> Schema:
    datatype = datatypes.of_name(spec.dtype)
    fields = {
        "name": _text(spec.name),
        "datatype": _text(datatype) if datatype else {"type": "string", "enum": known},
        "shape": _sizes(spec.record_shape, least),
        "data": {"type": "array", "items": element, "minItems": least, "description": "Flat, in C order."},
    }
    tensor = record(fields) | _about(spec.dtype, spec.record_shape)
    tensor["properties"]["parameters"] = {"type": ["object", "null"]}
    return tensor


def _sizes(shape: Sequence[int | None] | None, least: int) -> Schema:
    size: Schema = {"type": "integer", "minimum": least}
    if shape is None:
        return {"type": "array", "items": size, "minItems": 1}
    count = len(shape) + 1
    # Tools know no sizes by position (prefixItems).
    sizes = [-1, *(-1 if each is None else each for each in shape)]
    # A batch of single values may have a second dimension of 1.
    limits = {"minItems": count, "maxItems": max(count, 2), "description": f"{sizes}; -1 is any size."}
    return {"type": "array", "items": size, **limits}


def _about(dtype: str, shape: Sequence[int | None] | None) -> Schema:
    return {"description": type_text(dtype, shape)}


def _nested(element: Schema, shape: Sequence[int | None], least: int) -> Schema:
    for size in reversed(shape):
        limits = {"minItems": least} if size is None else {"minItems": size, "maxItems": size}
        element = {"type": "array", "items": element, **limits}
    return element


def _element(dtype: str) -> Schema:
    """Return the schema of one element of a dtype."""
    if dtype in ("", "str", "bool"):
        return {"": {}, "str": {"type": "string"}, "bool": {"type": "boolean"}}[dtype]
    kind = np.dtype(dtype).kind
    if kind in "iu":
        limits = np.iinfo(dtype)
        return {"type": "integer", "format": dtype, "minimum": int(limits.min), "maximum": int(limits.max)}
    return {"type": "number", "format": _FORMATS.get(dtype, dtype)}


def _taken(dtype: str) -> Schema:
    """Return the schema of one element of an input: null is a missing value, and truth values are 0 and 1.

    A list of types would be a choice as well, but generators of Rust and others make an empty type of it.
    """
    element = _element(dtype)
    more: Mapping[str, list[Schema]] = {
        "boolean": [{"type": "integer", "minimum": 0, "maximum": 1}],
        "integer": [{"type": "boolean"}],
        "number": [{"type": "boolean"}, {"type": "null"}],
    }
    others = more.get(element.get("type", ""), [])
    return one_of([element, *others])


def _answered(dtype: str) -> Schema:
    """Return the schema of one element of an output."""
    element = _element(dtype)
    if element.get("type") != "number":
        return element
    # JSON has neither NaN nor infinity.
    number = element | {"type": ["number", "null"]}
    is_complex = np.dtype(dtype).kind == "c"
    return {"type": "array", "items": {"type": number["type"]}, "minItems": 2, "maxItems": 2} if is_complex else number
