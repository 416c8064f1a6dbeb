"""Wrong messages that follow from a message of protobuf: one field, at any depth, has another value in each."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

Path = tuple[str | int, ...]
Change = Callable[[Any], str]
"""Changes a message, and returns what is other."""

VALUES: Mapping[int, tuple[Any, ...]] = {
    FieldDescriptor.CPPTYPE_STRING: ("", "other", "\0", "a" * 4000),
    FieldDescriptor.CPPTYPE_INT32: (-1, 0, 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-1, 0, 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_FLOAT: (float("nan"),),
    FieldDescriptor.CPPTYPE_DOUBLE: (float("nan"),),
    FieldDescriptor.CPPTYPE_BOOL: (True, False),
    FieldDescriptor.CPPTYPE_ENUM: (99,),
}
"""Type of a field → values of it."""

PARAMETERS: Mapping[str, Any] = {"int64_param": -1, "string_param": "a" * 4000, "bool_param": True, "": None}
"""Fields of a parameter → value."""


def messages(message: Any) -> Iterator[tuple[str, Any]]:
    """Yield the path of a field with its value, and a copy of the message that has it.

    Of repeated fields, elements change, are added and are missing, and maps get another entry.
    """
    for path, change in _changes(message, ()):
        made = type(message)()
        made.CopyFrom(message)
        target = made
        for step in path:
            target = target[step] if isinstance(step, int) else getattr(target, step)
        what = change(target)
        if made != message:
            yield f"{'.'.join(map(str, path))}.{what}".lstrip("."), made


def _changes(message: Any, path: Path) -> Iterator[tuple[Path, Change]]:
    """Yield the path of a message within the whole, and a change of it."""
    for field in message.DESCRIPTOR.fields:
        name, held = field.name, getattr(message, field.name)
        if field.message_type and field.message_type.GetOptions().map_entry:
            for key in ("surplus", "", "a" * 4000):
                for kind, value in PARAMETERS.items():
                    yield path, partial(_enter, name, key, kind, value)
            continue
        is_repeated = hasattr(held, "extend")
        if is_repeated:
            yield path, partial(_clear, name)
        if field.message_type:
            if is_repeated:
                yield path, partial(_extend, name, held[0] if held else field.message_type._concrete_class())
            for index, each in enumerate(held if is_repeated else [held]):
                yield from _changes(each, (*path, name, *([index] if is_repeated else [])))
            continue
        values = (b"", b"\xff" * 5) if field.type == field.TYPE_BYTES else VALUES[field.cpp_type]
        for value in values:
            yield path, partial(_extend if is_repeated else _set, name, value)
            if is_repeated and held:
                yield path, partial(_replace, name, value)


def _set(name: str, value: Any, message: Any) -> str:
    setattr(message, name, value)
    return f"{name} is {value!r}"


def _clear(name: str, message: Any) -> str:
    message.ClearField(name)
    return f"{name} is missing"


def _extend(name: str, value: Any, message: Any) -> str:
    getattr(message, name).extend([value])
    return f"{name} has {value!r}, too"


def _replace(name: str, value: Any, message: Any) -> str:
    getattr(message, name)[0] = value
    return f"{name}[0] is {value!r}"


def _enter(name: str, key: str, kind: str, value: Any, message: Any) -> str:
    entry = getattr(message, name)[key]
    if kind:
        setattr(entry, kind, value)
    return f"{name}[{key!r}] is {value!r}"
