"""The form of predictions by the address, for clients that can only be given an address, and by the client.

`/zoo-0.9/models/m/versions/1/predict` is `/models/m/versions/1/predict` with predictions in the form `zoo-0.9`.
"""

import re
from typing import cast, get_args

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from cluster_serving.frontend.options import ResponseFormat
from cluster_serving.frontend.server.http.call import call_of

FORMATS: tuple[str, ...] = get_args(ResponseFormat)

_KEY = "response_format"

_EARLY_HTTPX = re.compile(r"python-httpx/0\.(\d|1[0-4])\.")
"""The only releases with which the original's Python clients reach a front end."""


class FormatPrefix:
    """Middleware that takes a form from the start of the path; every path may have one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, without the form in its path."""
        if scope["type"] == "http":
            name, _, rest = scope["path"][1:].partition("/")
            if name in FORMATS:
                scope = {**scope, "path": f"/{rest}", _KEY: name}
        await self._app(scope, receive, send)


def format_of(request: Request, default: ResponseFormat) -> ResponseFormat:
    """Return the form in the address of a request; else the default, or the text that an original client expects."""
    named = request.scope.get(_KEY)
    if named is None and default == "json" and _is_of_original(request):
        return "bigdl"
    return cast("ResponseFormat", named or default)


def _is_of_original(request: Request) -> bool:
    """Return True for a request of the original's Python client, whose `predict` can read nothing but a text.

    It sends a text by an httpx of 2020, without a content type.
    """
    call = call_of(request)
    agent = call.header(b"user-agent")
    return agent is not None and bool(_EARLY_HTTPX.match(agent)) and call.header(b"content-type") is None
