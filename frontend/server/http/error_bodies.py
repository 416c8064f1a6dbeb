"""Bodies of errors, in the form of the API at the path of a request, whatever part of the front end refuses it."""

import re
from typing import Any

from cluster_serving.protocol.errors import ServingError

_OPENAI = re.compile(r"/v1/(?!requests(/|$)|models/[^/]*[/:])")
"""Paths of OpenAI's API: not those of queued requests, which are ours, nor verbs and versions of models (KServe)."""


def error_body(error: ServingError, path: str) -> dict[str, Any]:
    """Return the JSON of an error to a request of a path; empty for a path that is not known."""
    return openai_body(error) if _OPENAI.match(path) else {"error": error.message, "code": error.code}


def openai_body(error: ServingError) -> dict[str, Any]:
    """Return the JSON of an error in OpenAI's form; its `type` is one of that API, and its `code` ours."""
    kind = "invalid_request_error" if error.http_status < 500 else "server_error"
    return {"error": {"message": error.message, "type": kind, "param": None, "code": error.code}}
