"""Errors that only the front end raises. Its clients get these errors and those of `protocol.errors`."""

from collections.abc import Iterable
from typing import TypeVar

from cluster_serving.protocol.errors import ERRORS as PROTOCOL_ERRORS
from cluster_serving.protocol.errors import RequestTooLarge, ServingError

T = TypeVar("T")

RECORD_BYTES = 1 << 10
"""Bytes that a record counts as: its place and its answer take memory and time, however small it is."""

MOST_STREAMS = 1000
"""Most answers in pieces to one request: each answer is read by itself."""


class StartError(Exception):
    """The front end cannot start: a file or an address cannot be used. The message says which one and why."""


class ModelNotFound(ServingError):
    """There is no model or job of this name."""

    code, http_status, grpc_status = "MODEL_NOT_FOUND", 404, "NOT_FOUND"


class ModelNotReady(ServingError):
    """The model's job does not run, or loads it for the first time and its inputs are not known; nothing was queued."""

    code, http_status, grpc_status = "MODEL_NOT_READY", 503, "UNAVAILABLE"


class RequestNotFound(ServingError):
    """There is no request of this id, or its result is no longer kept."""

    code, http_status, grpc_status = "REQUEST_NOT_FOUND", 404, "NOT_FOUND"


class FileNotFound(ServingError):
    """There is no file or batch of this id, or it is no longer kept."""

    code, http_status, grpc_status = "FILE_NOT_FOUND", 404, "NOT_FOUND"


class KeyInUse(ServingError):
    """The first request with this `Idempotency-Key` is not answered yet; send it again later."""

    code, http_status, grpc_status = "IDEMPOTENCY_KEY_IN_USE", 409, "ABORTED"


class KeyReused(ServingError):
    """An earlier request with this `Idempotency-Key` had another body; nothing was queued."""

    code, http_status, grpc_status = "IDEMPOTENCY_KEY_REUSED", 422, "INVALID_ARGUMENT"


class PathNotFound(ServingError):
    """The front end has no resource at this path."""

    code, http_status, grpc_status = "NOT_FOUND", 404, "UNIMPLEMENTED"


class MethodNotAllowed(ServingError):
    """The resource at this path has no such method; `allow` are those that it has, as the header has them."""

    code, http_status, grpc_status = "METHOD_NOT_ALLOWED", 405, "UNIMPLEMENTED"

    def __init__(self, message: str, allow: str = "") -> None:
        super().__init__(message)
        self.allow = allow


class NotSupported(ServingError):
    """The call belongs to a protocol of this front end, but not to the parts that are served."""

    code, http_status, grpc_status = "NOT_SUPPORTED", 501, "UNIMPLEMENTED"


class MalformedHttp(ServingError):
    """The bytes on a connection are not HTTP."""

    code, http_status, grpc_status = "MALFORMED_HTTP", 400, "INTERNAL"


class HttpVersionNotSupported(ServingError):
    """The request is of another major version of HTTP than 1."""

    code, http_status, grpc_status = "HTTP_VERSION_NOT_SUPPORTED", 505, "UNIMPLEMENTED"


class ExpectationFailed(ServingError):
    """The header Expect of a request names something else than `100-continue`."""

    code, http_status, grpc_status = "EXPECTATION_FAILED", 417, "FAILED_PRECONDITION"


class UnsupportedEncoding(ServingError):
    """The Content-Encoding of the body is not known; the header Accept-Encoding of the answer has those that are."""

    code, http_status, grpc_status = "UNSUPPORTED_ENCODING", 415, "INVALID_ARGUMENT"


class UrlTooLong(ServingError):
    """The URL of a request is longer than `maxHeaderBytes`."""

    code, http_status, grpc_status = "URL_TOO_LONG", 414, "RESOURCE_EXHAUSTED"


class HeadersTooLarge(ServingError):
    """The URL and the headers of a request are larger than `maxHeaderBytes`."""

    code, http_status, grpc_status = "HEADERS_TOO_LARGE", 431, "RESOURCE_EXHAUSTED"


class BodyTimeout(ServingError):
    """The body of a request did not arrive within `bodyTimeout`."""

    code, http_status, grpc_status = "BODY_TIMEOUT", 408, "DEADLINE_EXCEEDED"


class Overloaded(ServingError):
    """The front end has reached a limit: `parallelism`, `maxConnections` or `maxBodyMemory`; nothing was queued.

    Or it lost a process that worked on the body.
    """

    code, http_status, grpc_status = "OVERLOADED", 503, "UNAVAILABLE"


class RateLimited(ServingError):
    """The caller sends more requests than its rate allows; nothing was queued.

    The next attempt may succeed after `retry_after` seconds.
    """

    code, http_status, grpc_status = "RATE_LIMITED", 429, "RESOURCE_EXHAUSTED"

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unauthenticated(ServingError):
    """The request has no API key, or an unknown one."""

    code, http_status, grpc_status = "UNAUTHENTICATED", 401, "UNAUTHENTICATED"


class Forbidden(ServingError):
    """The front end or the job is configured not to do this."""

    code, http_status, grpc_status = "FORBIDDEN", 403, "PERMISSION_DENIED"


ERRORS = PROTOCOL_ERRORS | {
    error.code: error for error in ServingError.__subclasses__() if error.__module__ == __name__
}
"""Code → exception, of all errors that a front end answers with."""


def unexpected(error: Exception) -> ServingError:
    """Return what a client is told of a mistake in the front end, whose log has the traceback."""
    return ServingError(f"unexpected {type(error).__name__}")


def without_errors(outcomes: Iterable[T | ServingError]) -> list[T]:
    """Return the outcomes, or raise the first error among them."""
    values: list[T] = []
    for outcome in outcomes:
        if isinstance(outcome, ServingError):
            raise outcome
        values.append(outcome)
    return values


def check_count(field: str, count: int, most: int) -> None:
    """Raise `RequestTooLarge` if a field of a request has more than `most` records."""
    if count > most:
        raise RequestTooLarge(
            f"{field} has {count} records, which count as {count * RECORD_BYTES} bytes, {RECORD_BYTES} each; at most "
            f"{most * RECORD_BYTES} bytes are taken (maxBodyBytes, maxInstances)"
        )
