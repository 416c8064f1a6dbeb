"""Responses with a validator (RFC 9110, 8.8): a client that has one already is told so, and gets no body again."""

import hashlib
from collections.abc import Mapping, Sequence

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

_OF_UNCHANGED = ("etag", "cache-control")
"""Headers of a 304."""


class Validated(Response):
    """A response with an ETag of its content, which clients keep and ask about each time.

    A request whose If-None-Match names that ETag is answered with 304.
    """

    def __init__(self, body: bytes, media_type: str | None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(body, headers=headers, media_type=media_type)
        # Without it a browser might mix files of two versions after an upgrade.
        self.headers["cache-control"] = "no-cache"
        self.headers["etag"] = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, or that it is unchanged."""
        if self._is_known(Headers(scope=scope).getlist("if-none-match")):
            headers = {name: self.headers[name] for name in _OF_UNCHANGED}
            await Response(status_code=304, headers=headers)(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def _is_known(self, named: Sequence[str]) -> bool:
        """Return True if the header If-None-Match names this response; weak tags count as strong ones here."""
        tags = [tag.strip().removeprefix("W/") for tag in ",".join(named).split(",")]
        return tags == ["*"] or self.headers["etag"] in tags
