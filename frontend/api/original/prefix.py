"""Addresses that contain the form of predictions, for clients that can only be given an address.

`/zoo-0.9/models/m/versions/1/predict` is `/models/m/versions/1/predict` with predictions in the form `zoo-0.9`.
"""

from typing import cast, get_args

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from cluster_serving.frontend.options import ResponseFormat

FORMATS: tuple[str, ...] = get_args(ResponseFormat)

_KEY = "response_format"


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
    """Return the form in the address of a request, or the default."""
    return cast("ResponseFormat", request.scope.get(_KEY, default))
