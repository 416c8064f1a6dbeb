"""Numbers as Java writes them, for texts in the original server's results."""

from __future__ import annotations

import numpy as np


def java_float(value: float) -> str:
    """Write a number as Java's `Float.toString` does, since programs written for the original parse that text."""
    number = np.float32(value)
    if not np.isfinite(number):
        return str(number).replace("inf", "Infinity").replace("nan", "NaN")
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return np.format_float_positional(number, unique=True, trim="0")
    mantissa, exponent = np.format_float_scientific(number, unique=True, trim="0", exp_digits=1).split("e")
    return f"{mantissa}E{int(exponent)}"
