"""Errors that only the front end raises. Its clients get these errors and those of `protocol.errors`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from cluster_serving.protocol.errors import ERRORS as PROTOCOL_ERRORS
from cluster_serving.protocol.errors import ServingError

T = TypeVar("T")


class ModelNotFound(ServingError):
    """There is no model or job of this name."""

    code = "MODEL_NOT_FOUND"
    http_status = 404
    grpc_status = "NOT_FOUND"


class RequestNotFound(ServingError):
    """There is no request of this id, or its result is no longer kept."""

    code = "REQUEST_NOT_FOUND"
    http_status = 404
    grpc_status = "NOT_FOUND"


class PathNotFound(ServingError):
    """The front end has no resource at this path."""

    code = "NOT_FOUND"
    http_status = 404
    grpc_status = "UNIMPLEMENTED"


class MethodNotAllowed(ServingError):
    """The resource at this path has no such method."""

    code = "METHOD_NOT_ALLOWED"
    http_status = 405
    grpc_status = "UNIMPLEMENTED"


class MalformedHttp(ServingError):
    """The bytes on a connection are not HTTP."""

    code = "MALFORMED_HTTP"
    http_status = 400
    grpc_status = "INTERNAL"


class HeadersTooLarge(ServingError):
    """The URL and the headers of a request are larger than `maxHeaderBytes`."""

    code = "HEADERS_TOO_LARGE"
    http_status = 431
    grpc_status = "RESOURCE_EXHAUSTED"


class BodyTimeout(ServingError):
    """The body of a request did not arrive within `bodyTimeout`."""

    code = "BODY_TIMEOUT"
    http_status = 408
    grpc_status = "DEADLINE_EXCEEDED"


class Overloaded(ServingError):
    """The front end has reached `parallelism`, `maxConnections`, or lost a process; nothing was queued."""

    code = "OVERLOADED"
    http_status = 503
    grpc_status = "UNAVAILABLE"


class RateLimited(ServingError):
    """The caller sends more requests than its rate allows; nothing was queued.

    Args:
        message: Text of the error.
        retry_after: Seconds to wait before the next attempt.
    """

    code = "RATE_LIMITED"
    http_status = 429
    grpc_status = "RESOURCE_EXHAUSTED"

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unauthenticated(ServingError):
    """The request has no API key, or an unknown one."""

    code = "UNAUTHENTICATED"
    http_status = 401
    grpc_status = "UNAUTHENTICATED"


class Forbidden(ServingError):
    """The front end is configured not to do this."""

    code = "FORBIDDEN"
    http_status = 403
    grpc_status = "PERMISSION_DENIED"


FRONT_END_ERRORS: tuple[type[ServingError], ...] = (
    ModelNotFound,
    RequestNotFound,
    PathNotFound,
    MethodNotAllowed,
    MalformedHttp,
    HeadersTooLarge,
    BodyTimeout,
    Overloaded,
    RateLimited,
    Unauthenticated,
    Forbidden,
)

ERRORS = PROTOCOL_ERRORS | {error.code: error for error in FRONT_END_ERRORS}
"""Code → exception, of all errors that a front end answers with."""


def without_errors(outcomes: Iterable[T | ServingError]) -> list[T]:
    """Return the outcomes if there is no error among them.

    Raises:
        ServingError: The first error.
    """
    values: list[T] = []
    for outcome in outcomes:
        if isinstance(outcome, ServingError):
            raise outcome
        values.append(outcome)
    return values
