"""The request that is being answered: its id, its trace, its caller, and the time and priority asked for.

A job batches failing callers apart.
"""

import math
import re
from contextvars import ContextVar
from functools import lru_cache
from hashlib import blake2b

from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.keys import NORMAL, PRIORITIES

_MILLISECONDS = re.compile(r"\d{1,300}(\.\d{1,300})?([eE][+-]?\d{1,3})?", re.ASCII)
_LEAST_TIMEOUT = 1e-6

_caller: ContextVar[str] = ContextVar("caller", default="")

request_id: ContextVar[str] = ContextVar("request id", default="")
"""Id of the request that the current task answers, which its answer and the lines of logs have; empty for none."""

trace_id: ContextVar[str] = ContextVar("trace id", default="")
"""Id of its trace; empty for none, or if it is not sampled."""

has_own_limit: ContextVar[bool] = ContextVar("has own limit", default=False)
"""True if the client of the current task waits for less time than the front end allows."""


def set_caller(client: str, host: str) -> None:
    """Set the caller for what the current task does: the name of its API key, or its address if it has none."""
    _caller.set(_short(client, host))


def origin() -> str:
    """Return a short name of the caller, which says neither key nor address; empty if there is none."""
    return _caller.get()


def asked_seconds(name: str, text: str | None) -> float | None:
    """Return the seconds, at least a microsecond, of a text in milliseconds; None for none.

    Raises:
        InvalidInput: If it is not a number above 0; the message calls it by `name`.
    """
    # Python would also read forms such as 1_000, which are no numbers in a header.
    milliseconds = float(text) if text and _MILLISECONDS.fullmatch(text) else 0.0
    if text is not None and not 0 < milliseconds < math.inf:
        raise InvalidInput(f"the {name} is {text[:32]!r}; expected a number of milliseconds above 0")
    return None if text is None else max(milliseconds / 1000, _LEAST_TIMEOUT)


def asked_priority(name: str, text: str | None) -> str:
    """Return a priority in the queue of the job; `NORMAL` for none.

    Raises:
        InvalidInput: If it is another one than those of `PRIORITIES`; the message calls it by `name`.
    """
    if text is not None and text not in PRIORITIES:
        raise InvalidInput(f"the {name} is {text[:32]!r}; expected {', '.join(PRIORITIES)}")
    return text or NORMAL


@lru_cache(10_000)
def _short(client: str, host: str) -> str:
    return blake2b(f"{client}\n{'' if client else host}".encode(), digest_size=6).hexdigest()
