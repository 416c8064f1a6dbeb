"""Lines of the files of batches, as JSON: requests, and their answers."""

import io
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from cluster_serving.frontend.api.openai.codecs import Chat, Completions, Embeddings
from cluster_serving.protocol.errors import RequestTooLarge
from cluster_serving.protocol.original.json import check_size
from cluster_serving.protocol.values.lists import shown

ENDPOINTS: Mapping[str, Any] = {
    "/v1/completions": Completions.new,
    "/v1/chat/completions": Chat.new,
    "/v1/embeddings": Embeddings,
}
"""Path → function that returns the codec of one request."""

MOST_LINES = 50_000
MOST_ERRORS = 100


class Line(NamedTuple):
    """A request of a batch: its name in the file, and its body."""

    custom_id: str
    body: bytes


def read(content: bytes, endpoint: str) -> tuple[list[Line], list[dict[str, Any]]]:
    """Return the requests of a file, and the errors of lines that are no requests; empty lines do not count.

    Reading ends after `MOST_ERRORS` errors, since a file of another kind has an error in each line.
    """
    lines: list[Line] = []
    errors: list[dict[str, Any]] = []
    names: set[str] = set()
    for number, text in enumerate(io.BytesIO(content), 1):
        if len(errors) >= MOST_ERRORS:
            break
        if not text.strip():
            continue
        if len(lines) >= MOST_LINES:
            errors.append(_error(number, f"the file has more than {MOST_LINES} requests"))
            break
        line, problem = _line(text, endpoint, names)
        if line is None:
            errors.append(_error(number, problem))
            continue
        names.add(line.custom_id)
        lines.append(line)
    if not lines and not errors:
        errors.append(_error(None, "the file has no requests"))
    return lines, errors


def answer(custom_id: str, request_id: str, status: int, body: bytes) -> bytes:
    """Return the line of an answer."""
    response = {"status_code": status, "request_id": request_id, "body": orjson.Fragment(body)}
    return orjson.dumps({"id": request_id, "custom_id": custom_id, "response": response, "error": None})


def expired(custom_id: str, request_id: str) -> bytes:
    """Return the line of a request that was not answered in time."""
    error = {"code": "batch_expired", "message": "the request was not answered within the completion window"}
    return orjson.dumps({"id": request_id, "custom_id": custom_id, "response": None, "error": error})


def _line(text: bytes, endpoint: str, names: set[str]) -> tuple[Line | None, str]:
    try:
        check_size(text)
        content = orjson.loads(text)
    except RequestTooLarge as error:
        return None, error.message
    except orjson.JSONDecodeError as error:
        return None, f"the line is not JSON: {error}"
    if not isinstance(content, dict) or not isinstance(content.get("body"), dict):
        return None, "the line has no object 'body'"
    name = content.get("custom_id")
    if not isinstance(name, str) or not name or name in names:
        return None, f"'custom_id' is {shown(name)}; expected a text that no other line has"
    if content.get("method") != "POST" or content.get("url") != endpoint:
        return None, f"'method' and 'url' are not POST and {endpoint}, the endpoint of the batch"
    if content["body"].get("stream"):
        return None, "'stream' is not possible in a batch"
    return Line(name, orjson.dumps(content["body"])), ""


def _error(line: int | None, message: str) -> dict[str, Any]:
    return {"code": "invalid_request", "line": line, "message": message, "param": None}
