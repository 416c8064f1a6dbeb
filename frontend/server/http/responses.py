"""Responses in JSON: of results and of errors."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from starlette.responses import Response

from cluster_serving.frontend.errors import BodyTimeout, MethodNotAllowed, RateLimited, UnsupportedEncoding
from cluster_serving.frontend.server import failures
from cluster_serving.frontend.server.http.compression import CODINGS
from cluster_serving.frontend.server.http.error_bodies import error_body
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.values.number_lists import own_digits

_SIMPLE = (str, int, float, type(None))
_RETRY_AFTER = dict.fromkeys(
    [
        "QUEUE_FULL",
        "OVERLOADED",
        "REDIS_UNAVAILABLE",
        "MODEL_NOT_READY",
        "REQUEST_LOST",
        "IDEMPOTENCY_KEY_IN_USE",
    ],
    1,
)
"""Seconds in the header Retry-After, by code of the error."""


def dumps(content: Any) -> bytes:
    """Write JSON. The content may have numpy arrays; NaN and infinity, which JSON lacks, become null."""
    try:
        return orjson.dumps(content, _as_list, orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError:
        # Documents of handlers may have whole numbers of more than 64 bits, and texts that are no Unicode.
        return json.dumps(_plain(content), separators=(",", ":")).encode()


class Json(Response):
    """A JSON response; see `dumps`."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Serialize the content."""
        return dumps(content)


class Written(Response):
    """A response of JSON that is written already; made at a third of the cost of another one."""

    def __init__(self, body: bytes) -> None:
        self.status_code = 200
        self.background = None
        self.body = body
        self.raw_headers = [(b"content-length", b"%d" % len(body)), (b"content-type", Json.media_type.encode())]


def error_response(error: ServingError, path: str, content: bytes | None = None) -> Response:
    """Return the response to a request of a path that failed, with a body of the form of its API unless there is one.

    It is logged if it is the fault of the server.
    """
    failures.note(error)
    headers = _error_headers(error)
    if isinstance(error, BodyTimeout):
        # The rest of the body is not read, so no other request can follow on this connection.
        headers["connection"] = "close"
    body = dumps(error_body(error, path)) if content is None else content
    return Response(body, error.http_status, headers, Json.media_type)


def worst_error(outcomes: Iterable[object]) -> ServingError | None:
    """Return the error with the highest HTTP status among outcomes; None if there is no error."""
    errors = (outcome for outcome in outcomes if isinstance(outcome, ServingError))
    return max(errors, key=lambda error: error.http_status, default=None)


def _error_headers(error: ServingError) -> dict[str, str]:
    if isinstance(error, RateLimited):
        return {"retry-after": str(max(1, math.ceil(error.retry_after)))}
    if isinstance(error, MethodNotAllowed):
        return {"allow": error.allow}
    if isinstance(error, UnsupportedEncoding):
        return {"accept-encoding": CODINGS}
    if error.code in _RETRY_AFTER:
        return {"retry-after": str(_RETRY_AFTER[error.code])}
    return {"www-authenticate": "Bearer"} if error.http_status == 401 else {}


def _plain(content: Any) -> Any:
    if isinstance(content, Mapping) and all(isinstance(name, str) for name in content):
        return {name: _plain(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_plain(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return None
    if isinstance(content, _SIMPLE):
        return content
    if type(converted := _as_list(content)) is type(content):
        raise TypeError(f"{type(content).__name__} has no JSON form")
    return _plain(converted)


def _as_list(value: Any) -> Any:
    # orjson writes arrays by itself, except those of dtypes that it does not know.
    if hasattr(value, "tolist"):
        return own_digits(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
