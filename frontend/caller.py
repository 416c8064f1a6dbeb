"""The request that is being answered: its id, its trace, and its caller; a job batches failing callers apart."""

from contextvars import ContextVar
from functools import lru_cache
from hashlib import blake2b

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


@lru_cache(10_000)
def _short(client: str, host: str) -> str:
    return blake2b(f"{client}\n{'' if client else host}".encode(), digest_size=6).hexdigest()
