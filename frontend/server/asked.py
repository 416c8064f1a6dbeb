"""What a client asks for beside its message, in headers of HTTP or metadata of gRPC: time to wait, and priority."""

from __future__ import annotations

import math
import re

from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.keys import NORMAL, PRIORITIES

_NUMBER = re.compile(r"\d{1,300}(\.\d{1,300})?([eE][+-]?\d{1,3})?", re.ASCII)
_LEAST_TIMEOUT = 1e-6


def seconds(name: str, text: str | None) -> float | None:
    """Return the seconds, at least a microsecond, of a text in milliseconds; None without a text.

    Raises:
        InvalidInput: If the text is not a number above 0. The message calls it by `name`.
    """
    if text is None:
        return None
    # Python would also read forms such as 1_000, which are no numbers in a header.
    milliseconds = float(text) if _NUMBER.fullmatch(text) else 0.0
    if not 0 < milliseconds < math.inf:
        raise InvalidInput(f"the {name} is {text[:32]!r}; expected a number of milliseconds above 0")
    return max(milliseconds / 1000, _LEAST_TIMEOUT)


def priority(name: str, text: str | None) -> str:
    """Return the priority in the queue of the job that a text names; `NORMAL` without a text.

    Raises:
        InvalidInput: If it names another priority than those of `PRIORITIES`. The message calls it by `name`.
    """
    if text is None:
        return NORMAL
    if text not in PRIORITIES:
        raise InvalidInput(f"the {name} is {text[:32]!r}; expected {', '.join(PRIORITIES)}")
    return text
