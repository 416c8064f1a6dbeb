"""The files of the page `/ui`."""

from __future__ import annotations

import mimetypes
from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_INDEX = "index.html"
_FILES = {
    "/ui" if path.name == _INDEX else f"/ui/{path.name}": path
    for path in sorted((Path(__file__).parents[1] / "ui").iterdir())
}

PATHS = frozenset(_FILES)
"""Where they are; they hold no data, so they need no API key."""

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    # After an upgrade, files of two versions must not meet.
    "cache-control": "no-cache",
}


def routes() -> list[Route]:
    """The paths of the files."""
    return [Route(address, _sends(path), methods=["GET"]) for address, path in _FILES.items()]


def _sends(path: Path) -> Callable[[Request], Awaitable[Response]]:
    content, kind = path.read_bytes(), mimetypes.guess_type(path.name)[0]

    async def send(_: Request) -> Response:
        return Response(content, media_type=kind, headers=_HEADERS)

    return send
