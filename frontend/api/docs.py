"""The OpenAPI document of all paths: `openapi.yaml`, completed."""

import re
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

_FOLDER = Path(__file__).parent
_ENCODING = {"$ref": "#/components/parameters/ContentEncoding"}
_FORMATS = {"integer": "int64", "number": "double"}
_UNSUPPORTED_ENCODING = {"$ref": "#/components/responses/UnsupportedEncoding"}


@cache
def document(keys: bool) -> dict[str, Any]:
    """Return `openapi.yaml` with the version of the package, a name for each operation, and what all bodies have.

    Numbers without a format have that of 64 bits: generators of clients take 32, too few for a time in milliseconds.

    It has no security schemes if no API keys are needed.
    """
    content: dict[str, Any] = _wide(yaml.safe_load((_FOLDER / "openapi.yaml").read_text("utf8")))
    content["info"]["version"] = version("cluster-serving")
    content["paths"] = {
        path: {method: _completed(method, path, operation) for method, operation in methods.items()}
        for path, methods in content["paths"].items()
    }
    if not keys:
        content["security"] = []
        del content["components"]["securitySchemes"]
    return content


def _wide(part: Any) -> Any:
    """Return a part of the document whose schemas of numbers have a format."""
    if isinstance(part, list):
        return [_wide(each) for each in part]
    if not isinstance(part, dict):
        return part
    kinds = part.get("type", "")
    named = [form for kind, form in _FORMATS.items() if kind == kinds or (isinstance(kinds, list) and kind in kinds)]
    wide = {"format": named[0]} if named else {}
    return wide | {key: _wide(value) for key, value in part.items()}


def _completed(method: str, path: str, operation: dict[str, Any]) -> dict[str, Any]:
    """Return an operation with its name and, if it takes a body, the header Content-Encoding."""
    operation = {"operationId": _named(method, path), **operation}
    if "requestBody" in operation:
        operation["parameters"] = [*operation.get("parameters", ()), _ENCODING]
        operation["responses"] = {**operation["responses"], "415": _UNSUPPORTED_ENCODING}
    return operation


def _named(method: str, path: str) -> str:
    """Return the name of an operation: generators of clients name their functions after it."""
    words = re.findall(r"[A-Za-z0-9]+", path.replace("{", "by/"))
    return method + "".join(word[0].upper() + word[1:] for word in words)
