"""Many numbers as Java writes them; see `protocol.original.floats` for one."""

import numpy as np
import orjson

from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.original.floats import java_float


def java_floats(array: Array) -> str:
    """Write numbers as `java_float` does, separated by commas.

    orjson writes a thousand numbers in the time in which Python writes ten. Numbers that Java writes with an exponent
    have the same digits there.
    """
    with np.errstate(over="ignore"):
        numbers = np.ascontiguousarray(array, np.float32).reshape(-1)
    sizes = np.abs(numbers)
    texts = orjson.dumps(numbers, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].decode()
    others = np.flatnonzero(~((sizes == 0) | (sizes >= 1e-3) & (sizes < 1e7)))
    if not others.size:
        return texts
    parts = texts.split(",")
    for index in others.tolist():
        parts[index] = java_float(numbers[index]) if parts[index] == "null" else _scientific(parts[index])
    return ",".join(parts)


def _scientific(text: str) -> str:
    """Write a number that orjson wrote, other than 0, with an exponent."""
    sign = "-" if text[0] == "-" else ""
    mantissa, _, exponent = text[len(sign) :].partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = f"{whole}{fraction}".strip("0")
    power = int(exponent or 0) + (len(whole) if whole != "0" else len(fraction.lstrip("0")) - len(fraction)) - 1
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"
