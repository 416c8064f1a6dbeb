"""Errors that travel through Redis: exceptions with the code that stands for each in a result hash.

The job writes `code` and `message` into the result hash, and the client rebuilds the exception from the code. A front
end takes the HTTP and gRPC status from the same class; `frontend.errors` has the errors that only a front end raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_MESSAGE_BYTES = 4096
"""Length limit of an error message in a result, as UTF-8."""


class ServingError(Exception):
    """Base of all errors of Cluster Serving; by itself, an error that no other class names.

    Attributes:
        code: Name of the error on the wire (hash field `code`).
        http_status: Status that an HTTP front end answers with.
        grpc_status: Name of the gRPC status code that a gRPC front end answers with.
        version: Version of the model that answered with this error; None if it is unknown, or no model did.
        uri: Name of the request, which the log of the job has; None if the request was not queued.
    """

    code: ClassVar[str] = "INTERNAL"
    http_status: ClassVar[int] = 500
    grpc_status: ClassVar[str] = "INTERNAL"
    version: str | None = None
    uri: str | None = None

    @property
    def message(self) -> str:
        """Text without the code, cut off at `MAX_MESSAGE_BYTES`: the text may quote anything that a request holds."""
        return str(self).encode("utf8", "backslashreplace")[:MAX_MESSAGE_BYTES].decode("utf8", "ignore")

    def renewed(self) -> Self:
        """Return an equal error for another record, since one shared object would collect the tracebacks of all."""
        twin = type(self)(*self.args)
        twin.version, twin.uri = self.version, self.uri
        return twin


class InvalidInput(ServingError, ValueError):
    """A request or one of its fields is not what the model or the protocol expects."""

    code, http_status, grpc_status = "INVALID_INPUT", 400, "INVALID_ARGUMENT"


class RequestTooLarge(InvalidInput):
    """A request is larger than `maxRequestBytes`, or an image has too many pixels."""

    code, http_status, grpc_status = "REQUEST_TOO_LARGE", 413, "RESOURCE_EXHAUSTED"


class VersionNotFound(InvalidInput):
    """A request names a version of the model that is not served; the message names those that are."""

    code, http_status, grpc_status = "VERSION_NOT_FOUND", 404, "NOT_FOUND"


class InferenceFailed(ServingError):
    """The model raised an error while it computed this request."""

    code, http_status, grpc_status = "INFERENCE_FAILED", 500, "INTERNAL"


class InferenceTimeout(InferenceFailed):
    """The model did not return within `inferenceTimeout` when it computed this request."""

    code, http_status, grpc_status = "INFERENCE_TIMEOUT", 504, "DEADLINE_EXCEEDED"


class PoisonRequest(ServingError):
    """The process that computed the request died `maxDeliveries` times; the request is a dead letter now."""

    code, http_status, grpc_status = "POISON_REQUEST", 500, "ABORTED"


class ResultTimeout(ServingError, TimeoutError):
    """No result came within the caller's timeout; the request may still be answered later."""

    code, http_status, grpc_status = "RESULT_TIMEOUT", 504, "DEADLINE_EXCEEDED"


class DeadlineExceeded(ServingError, TimeoutError):
    """The request waited longer than its deadline and was dropped before it was computed."""

    code, http_status, grpc_status = "DEADLINE_EXCEEDED", 504, "DEADLINE_EXCEEDED"


class RequestLost(ServingError):
    """The request has gone from Redis without a result; nothing will answer it, and it may be sent again."""

    code, http_status, grpc_status = "REQUEST_LOST", 503, "UNAVAILABLE"


class RequestCancelled(ServingError):
    """The request was withdrawn before it was computed; 499 is the HTTP status that gRPC maps CANCELLED to."""

    code, http_status, grpc_status = "REQUEST_CANCELLED", 499, "CANCELLED"


class RequestRestarted(ServingError):
    """The answer in pieces began anew, over a protocol that cannot take back what was sent; send the request again."""

    code, http_status, grpc_status = "REQUEST_RESTARTED", 503, "ABORTED"


class QueueFull(ServingError):
    """There is no room for the request, which was not computed; it may be sent again later.

    The queue holds `maxQueueLength` requests, or Redis has reached its memory limit. Or so many requests of this client
    make the model fail that other clients would wait for them.
    """

    code, http_status, grpc_status = "QUEUE_FULL", 429, "RESOURCE_EXHAUSTED"


class RedisUnavailable(ServingError, ConnectionError):
    """Redis cannot be reached, or refuses the connection."""

    code, http_status, grpc_status = "REDIS_UNAVAILABLE", 503, "UNAVAILABLE"


class ModelError(ServingError):
    """The model folder does not hold exactly one model that can be loaded."""

    code, http_status, grpc_status = "MODEL_ERROR", 503, "FAILED_PRECONDITION"


class EngineMissing(ModelError):
    """The package of an engine or of decryption is not installed; the message names the extra to install."""

    code = "ENGINE_MISSING"


def _all_errors(base: type[ServingError]) -> list[type[ServingError]]:
    return [base, *(error for child in base.__subclasses__() for error in _all_errors(child))]


ERRORS: dict[str, type[ServingError]] = {error.code: error for error in _all_errors(ServingError)}
"""Code → exception."""


def from_wire(code: str, message: str) -> ServingError:
    """Rebuild an error from the fields `code` and `error` of a result hash; an unknown code gives the base class."""
    return ERRORS.get(code, ServingError)(message)
