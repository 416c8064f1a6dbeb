"""An HTTP request apart from its content."""

import asyncio
import re
import sys
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from cluster_serving.frontend.caller import asked_priority, asked_seconds
from cluster_serving.frontend.server.admission.body_memory import Share
from cluster_serving.frontend.server.http import cycle

T = TypeVar("T")

_WEIGHT = re.compile(r"\d(\.\d*)?|\.\d+", re.ASCII)

OTHER = "other"
"""Label of requests to no API in the metrics."""


@dataclass(slots=True)
class HttpCall:
    """A request: the middleware makes one object, which all functions that answer the request use.

    Attributes:
        body: Memory of its body.
        headers: Its headers by name, in small letters; several of one name are one, with commas.
        receive: Function of ASGI that returns the next part of its body.
        protocol: Its API, for the metrics.
        model: Name of its model, for the metrics; empty for none, and until the model is known to exist.
        version: Version of the model that answered it, for its answer and the metrics; empty for none.
        client: Name of its API key; empty for none.
    """

    body: Share
    headers: Mapping[bytes, bytes]
    receive: Receive
    protocol: str = OTHER
    model: str = ""
    version: str = ""
    client: str = ""

    def header(self, name: bytes) -> str | None:
        """Return a header by its name in small letters; starlette searches all of them each time."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin1")

    def choices(self, name: bytes) -> Mapping[str, float]:
        """Return the choices of a header such as Accept, in small letters, with their weights; 0 for a refused one."""
        return _weights((self.header(name) or "").lower())

    @property
    def timeout(self) -> float | None:
        """Seconds that the header X-Timeout-Ms allows, at least a microsecond; None without the header.

        Raises:
            InvalidInput: If the header is not a number above 0.
        """
        return asked_seconds("header X-Timeout-Ms", self.header(b"x-timeout-ms"))

    @property
    def priority(self) -> str:
        """Priority in the queue of the job, from the header X-Priority; `NORMAL` without the header.

        Raises:
            InvalidInput: If the header names another priority than those of `PRIORITIES`.
        """
        return asked_priority("header X-Priority", self.header(b"x-priority"))

    async def unless_gone(self, work: Awaitable[T]) -> T:
        """Await the work for a request whose body has been read.

        Raises:
            ClientDisconnect: If the client has closed the connection; the work is cancelled then.
        """
        task = asyncio.current_task()
        gone = False

        def leave() -> None:
            nonlocal gone
            gone = True
            if task is not None:
                task.cancel()

        cycle.on_disconnect(self.receive, leave)
        try:
            return await work
        except asyncio.CancelledError:
            # Before 3.11, Python does not count cancellations.
            if gone and (sys.version_info < (3, 11) or task is None or task.uncancel() == 0):
                raise ClientDisconnect from None
            raise
        finally:
            cycle.on_disconnect(self.receive, None)


def call_of(request: Request) -> HttpCall:
    """Return the call of a request that has passed the middleware."""
    call: HttpCall = request.scope["call"]
    return call


@lru_cache(maxsize=256)
def _weights(header: str) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for choice in header.split(","):
        name, *parameters = ("".join(part.split()) for part in choice.split(";"))
        weight = next((part[2:] for part in parameters if part.startswith("q=")), "1")
        found[name] = float(weight) if _WEIGHT.fullmatch(weight) else 0.0
    return found
