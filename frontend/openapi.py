"""The OpenAPI document, and the page that shows it without the internet."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from cluster_serving.client.errors import ERRORS
from cluster_serving.frontend.answering import Json
from cluster_serving.frontend.front_end import FrontEnd

Paths = dict[str, dict[str, Any]]

_MEANINGS = {
    400: "The request is not what was expected; the message says where.",
    401: "An API key is needed, or this one is unknown.",
    403: "The front end is configured not to do this.",
    404: "There is no such model or request.",
    408: "The body did not arrive in time.",
    413: "The body, its instances or an image are too large.",
    429: "Too many requests; Retry-After says when to come back.",
    500: "The model failed on an instance.",
    503: "Redis or the job cannot be used, or the front end is full; Retry-After says when to come back.",
    504: "No result in time.",
}
_JSON = "application/json"


def ref(name: str) -> dict[str, str]:
    """A reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def content(schema: Mapping[str, Any], kind: str = _JSON) -> dict[str, Any]:
    """A body of a schema."""
    return {kind: {"schema": schema}}


def refusals(*statuses: int, schema: str = "Error") -> dict[str, Any]:
    """Responses that say what is wrong; those that any request may get are among them."""
    return {
        str(status): {"description": _MEANINGS[status], "content": content(ref(schema))}
        for status in sorted({401, 500, 503, *statuses})
    }


def parameter(name: str, place: str, text: str, **schema: Any) -> dict[str, Any]:
    """A parameter of a path, a query or a header."""
    return {"name": name, "in": place, "required": place == "path", "description": text, "schema": schema}


MODEL = parameter("name", "path", "Name of the model.", type="string")
VERSION = parameter("version", "path", "Its version.", type="string")
TIMEOUT = parameter("X-Timeout-Ms", "header", "Milliseconds to wait at most.", type="integer", minimum=1)
PRIORITY = parameter(
    "X-Priority", "header", "Which requests the job takes first.", type="string", enum=["high", "normal", "low"]
)

_OF_PREDICT = (400, 404, 408, 413, 429, 504)
_FORMAT = parameter(
    "responseFormat", "query", "How predictions are written.", type="string", enum=["json", "bigdl", "zoo-0.9"]
)
_ID = parameter("id", "path", "From the answer to POST /v1/requests.", type="string")
_TEXT = {"text/plain": {"schema": {"type": "string"}}}


def _operation(summary: str, tag: str, responses: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"summary": summary, "tags": [tag], "responses": dict(responses), **more}


def _ok(schema: Mapping[str, Any], text: str = "The answer.") -> dict[str, Any]:
    return {"200": {"description": text, "content": content(schema)}}


def _predict(*parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "post": _operation(
            "Predict instances.",
            "predict",
            _ok(ref("Predictions"), "A prediction for each instance, in order.")
            | refusals(*_OF_PREDICT, schema="PredictError"),
            parameters=[*parameters, _FORMAT, TIMEOUT, PRIORITY],
            requestBody={"required": True, "content": content(ref("Instances"))},
        )
    }


def _paths() -> Paths:
    listed = {"type": "array", "items": ref("Model")}
    secret = {
        "type": "object",
        "required": ["secret", "salt"],
        "properties": dict.fromkeys(("secret", "salt"), _STRING),
    }
    form = "application/x-www-form-urlencoded"
    event = {"text/event-stream": {"schema": _object("event data", event=_STRING, data=_STRING)}}
    metrics = content({"type": "array", "items": {"type": "object"}}) | _TEXT
    return {
        "/": {
            method: _operation("Say welcome.", "operation", {"200": {"description": "Text.", "content": _TEXT}})
            for method in ("get", "post", "put", "patch", "delete", "options")
        },
        "/predict": _predict(),
        "/models": {"get": _operation("List the models.", "models", _ok(listed) | refusals())},
        "/models/{name}": {
            "get": _operation("Describe a model.", "models", _ok(listed) | refusals(404), parameters=[MODEL])
        },
        "/models/{name}/versions/{version}": {
            "get": _operation(
                "Describe a version.", "models", _ok(ref("Model")) | refusals(404), parameters=[MODEL, VERSION]
            )
        },
        "/models/{name}/predict": _predict(MODEL),
        "/models/{name}/versions/{version}/predict": _predict(MODEL, VERSION),
        "/v1/requests": {
            "post": _operation(
                "Queue instances, to ask for their predictions later.",
                "asynchronous",
                {"202": {"description": "They are queued.", "content": content(ref("Pending"))}}
                | refusals(400, 403, 404, 408, 413, 429),
                parameters=[PRIORITY],
                requestBody={"required": True, "content": content(ref("Submission"))},
            )
        },
        "/v1/requests/{id}": {
            "get": _operation(
                "Ask for the predictions.",
                "asynchronous",
                _ok({"anyOf": [ref("Pending"), ref("Done")]}) | refusals(400, 404),
                parameters=[
                    _ID,
                    parameter("wait", "query", "Seconds to wait.", type="number", minimum=0, maximum=300),
                ],
            ),
            "delete": _operation(
                "Cancel: take it out of the queue, forget its result.",
                "asynchronous",
                {"204": {"description": "It is cancelled."}} | refusals(404),
                parameters=[_ID],
            ),
        },
        "/v1/requests/{id}/events": {
            "get": _operation(
                "Predictions as server-sent events, as they come.",
                "asynchronous",
                {"200": {"description": "Events prediction, and then done.", "content": event}} | refusals(404),
                parameters=[_ID],
            )
        },
        "/model-secure": {
            "post": _operation(
                "Store the secret and the salt of encrypted models.",
                "models",
                {"200": {"description": "They are stored.", "content": _TEXT}} | refusals(400, 403, 408, 413, 429),
                requestBody={"required": True, "content": content(secret, form)},
            )
        },
        "/metrics": {
            "get": _operation(
                "Metrics: Prometheus' text if its type is asked for, else a list.",
                "operation",
                {"200": {"description": "Metrics.", "content": metrics}} | refusals(),
            )
        },
        "/health/live": {"get": _operation("Whether this process answers.", "operation", _ok(ref("Live")))},
        "/health/ready": {"get": _operation("Whether the jobs answer.", "operation", _ok(ref("Ready")) | _not_ready())},
    }


def _not_ready() -> dict[str, Any]:
    return {"503": {"description": "They do not.", "content": content(ref("Ready"))}}


_STRING: dict[str, Any] = {"type": "string"}


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": properties}


def _schemas() -> dict[str, Any]:
    scalar = {"anyOf": [{"type": "number"}, _STRING, {"type": "boolean"}]}
    sparse = _object(
        "shape data indices",
        shape={"type": "array", "items": {"type": "integer", "minimum": 0}},
        data={"type": "array", "items": {"type": "number"}},
        indices={"type": "array", "items": {"type": "array", "items": {"type": "integer", "minimum": 0}}},
    )
    value = {
        "description": "A number, a text, an image in base64, nested lists of numbers or of texts, or a sparse tensor.",
        "anyOf": [scalar, {"type": "array", "items": ref("Value"), "minItems": 1}, ref("Sparse"), ref("Image")],
    }
    instances = {
        "type": "array",
        "minItems": 1,
        "items": {"type": "object", "minProperties": 1, "additionalProperties": ref("Value")},
        "example": [{"x": [0.0, 1.0]}],
    }
    prediction = {"anyOf": [{"type": "object"}, _STRING]}
    codes = {"type": "string", "enum": sorted({*ERRORS, "BODY_TIMEOUT"})}
    error = _object("error", error=_STRING, code=codes)
    predictions = {"type": "array", "items": prediction}
    spec = _object(
        "name dtype shape",
        name=_STRING,
        dtype=_STRING,
        shape={"type": ["array", "null"], "items": {"type": ["integer", "null"]}},
    )
    count = {"type": "integer"}
    return {
        "Value": value,
        "Sparse": sparse,
        "Image": _object("b64", b64=_STRING),
        "Instances": _object("instances", instances=instances),
        "Predictions": _object("predictions", predictions=predictions),
        "Error": error,
        "PredictError": _object("error", error=_STRING, code=codes, predictions=predictions),
        "Spec": spec,
        "Model": _object(
            "modelName modelVersion state inputs outputs",
            modelName=_STRING,
            modelVersion=_STRING,
            redisInputQueue=_STRING,
            state=_STRING,
            slots={"type": "object", "additionalProperties": count},
            engine=_STRING,
            inputs={"type": "array", "items": ref("Spec")},
            outputs={"type": "array", "items": ref("Spec")},
            features={"type": "array", "items": _STRING},
            postProcessing=_STRING,
            inputAlreadyBatched={"type": "boolean"},
            maxBatchSize=count,
        ),
        "Submission": _object("instances", instances=instances, model=_STRING, callback=_STRING),
        "Pending": _object("id status", id=_STRING, status={"const": "pending"}, answered=count, instances=count),
        "Done": _object(
            "id status predictions", id=_STRING, status={"enum": ["done", "failed"]}, predictions=predictions
        ),
        "Live": _object("live", live={"type": "boolean"}),
        "Ready": _object("ready", ready={"type": "boolean"}, error=_STRING),
    }


def document(keys: bool, *more: Paths) -> dict[str, Any]:
    """The OpenAPI document.

    Args:
        keys: Whether API keys are needed.
        more: Paths of further protocols.
    """
    paths = _paths()
    for others in more:
        paths |= others
    schemes = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Cluster Serving", "version": version("cluster-serving")},
        "paths": paths,
        "components": {"schemas": _schemas()},
    }
    if keys:
        made["components"]["securitySchemes"] = schemes
        made["security"] = [{name: []} for name in schemes]
    return made


def routes(front: FrontEnd, *more: Paths) -> list[Route]:
    """The document and its page.

    Args:
        front: The front end.
        more: Paths of further protocols.
    """
    described = document(front.keys is not None, *more)
    page = files("cluster_serving.frontend").joinpath("docs.html").read_text("utf8")

    async def openapi(_: Request) -> Response:
        return Json(described)

    async def docs(_: Request) -> Response:
        return HTMLResponse(page)

    return [Route("/openapi.json", openapi), Route("/docs", docs)]
