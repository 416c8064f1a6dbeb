"""What the parts of the OpenAPI document are written with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Paths = dict[str, dict[str, Any]]
Schemas = dict[str, dict[str, Any]]

_MEANINGS = {
    400: "The request is not what was expected; the message says where.",
    401: "An API key is needed, or this one is unknown.",
    403: "The front end is configured not to do this.",
    404: "There is no such model or request.",
    408: "The body did not arrive in time.",
    413: "The body, its instances or an image are too large.",
    429: "Too many requests; Retry-After says when to come back.",
    431: "The address and the headers are too large.",
    499: "Somebody withdrew the request from the queue.",
    500: "The model failed on an instance.",
    503: "Redis or the job cannot be used, or the front end is full; Retry-After says when to come back.",
    504: "No result in time.",
}
_ALWAYS = {401, 431, 500, 503}

JSON = "application/json"
STRING: dict[str, Any] = {"type": "string"}
BOOLEAN: dict[str, Any] = {"type": "boolean"}
INTEGER: dict[str, Any] = {"type": "integer"}
TEXT = {"text/plain": {"schema": STRING}}

OF_BODIES = (400, 404, 408, 413, 429)
"""Refusals of requests with a body."""

OF_PREDICTIONS = (*OF_BODIES, 499, 504)
"""Refusals of requests that wait for predictions."""


def ref(name: str) -> dict[str, str]:
    """A reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A list."""
    return {"type": "array", "items": dict(items), **more}


def record(required: str, **properties: Any) -> dict[str, Any]:
    """An object; what is required is separated by blanks."""
    return {"type": "object", "required": required.split(), "properties": properties}


def content(schema: Mapping[str, Any], kind: str = JSON) -> dict[str, Any]:
    """A body of a schema."""
    return {kind: {"schema": schema}}


def ok(schema: Mapping[str, Any], text: str = "The answer.") -> dict[str, Any]:
    """The response 200."""
    return {"200": {"description": text, "content": content(schema)}}


def refusals(*statuses: int, schema: str = "Error") -> dict[str, Any]:
    """Responses that say what is wrong; those that any request may get are among them."""
    return {
        str(status): {"description": _MEANINGS[status], "content": content(ref(schema))}
        for status in sorted({*_ALWAYS, *statuses})
    }


def parameter(name: str, place: str, text: str, **schema: Any) -> dict[str, Any]:
    """A parameter of a path, a query or a header."""
    return {"name": name, "in": place, "required": place == "path", "description": text, "schema": schema}


def operation(summary: str, tag: str, responses: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """What a method does at a path."""
    return {"summary": summary, "tags": [tag], "responses": dict(responses), **more}


MODEL = parameter("name", "path", "Name of the model.", type="string")
VERSION = parameter("version", "path", "Its version.", type="string")
TIMEOUT = parameter("X-Timeout-Ms", "header", "Milliseconds to wait at most.", type="integer", minimum=1)
PRIORITY = parameter(
    "X-Priority", "header", "Which requests the job takes first.", type="string", enum=["high", "normal", "low"]
)
