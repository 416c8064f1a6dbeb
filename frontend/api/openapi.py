"""The OpenAPI document, and the page that shows it without the internet."""

from __future__ import annotations

from importlib.metadata import version
from importlib.resources import files
from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from cluster_serving.frontend.api import openapi_v2
from cluster_serving.frontend.api.openapi_terms import (
    BOOLEAN,
    INTEGER,
    MODEL,
    OF_BODIES,
    OF_PREDICTIONS,
    PRIORITY,
    STRING,
    TEXT,
    TIMEOUT,
    VERSION,
    Paths,
    Schemas,
    array,
    content,
    ok,
    operation,
    parameter,
    record,
    ref,
    refusals,
)
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.errors import ERRORS
from cluster_serving.frontend.options import ResponseFormat
from cluster_serving.frontend.server.responses import Json

_FORMATS = list(get_args(ResponseFormat))
_FORMAT = parameter("responseFormat", "query", "How predictions are written.", type="string", enum=_FORMATS)
_ID = parameter("id", "path", "From the answer to POST /v1/requests.", type="string")
_HTML = content(STRING, "text/html")


def _predict(*parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "post": operation(
            "Predict instances.",
            "predict",
            ok(ref("Predictions"), "A prediction for each instance, in order.")
            | refusals(*OF_PREDICTIONS, schema="PredictError"),
            parameters=[*parameters, _FORMAT, TIMEOUT, PRIORITY],
            requestBody={"required": True, "content": content(ref("Instances"))},
        )
    }


def _paths() -> Paths:
    listed = array(ref("Model"))
    secret = record("secret salt", secret=STRING, salt=STRING)
    form = "application/x-www-form-urlencoded"
    event = {"text/event-stream": {"schema": record("event data", event=STRING, data=STRING)}}
    metrics = content(array({"type": "object"})) | TEXT
    return {
        **{path: _welcome() for path in ("/", *(f"/{name}" for name in _FORMATS))},
        **{f"/{name}/predict": _predict() for name in _FORMATS},
        "/predict": _predict(),
        "/models": {"get": operation("List the models.", "models", ok(listed) | refusals())},
        "/models/{name}": {
            "get": operation("Describe a model.", "models", ok(listed) | refusals(404), parameters=[MODEL])
        },
        "/models/{name}/versions/{version}": {
            "get": operation(
                "Describe a version.", "models", ok(ref("Model")) | refusals(404), parameters=[MODEL, VERSION]
            )
        },
        "/models/{name}/predict": _predict(MODEL),
        "/models/{name}/versions/{version}/predict": _predict(MODEL, VERSION),
        "/v1/requests": {
            "post": operation(
                "Queue instances, to ask for their predictions later.",
                "asynchronous",
                {"202": {"description": "They are queued.", "content": content(ref("Pending"))}}
                | refusals(*OF_BODIES, 403),
                parameters=[PRIORITY],
                requestBody={"required": True, "content": content(ref("Submission"))},
            )
        },
        "/v1/requests/{id}": {
            "get": operation(
                "Ask for the predictions.",
                "asynchronous",
                ok({"anyOf": [ref("Pending"), ref("Done")]}) | refusals(400, 404),
                parameters=[
                    _ID,
                    parameter("wait", "query", "Seconds to wait.", type="number", minimum=0, maximum=300),
                ],
            ),
            "delete": operation(
                "Cancel: take it out of the queue, forget its result.",
                "asynchronous",
                {"204": {"description": "It is cancelled."}} | refusals(404),
                parameters=[_ID],
            ),
        },
        "/v1/requests/{id}/events": {
            "get": operation(
                "Predictions as server-sent events, as they come.",
                "asynchronous",
                {"200": {"description": "Events prediction, and then done.", "content": event}} | refusals(404),
                parameters=[_ID],
            )
        },
        "/model-secure": {
            "post": operation(
                "Store the secret and the salt of encrypted models.",
                "models",
                {"200": {"description": "They are stored.", "content": TEXT}} | refusals(400, 403, 408, 413, 429),
                requestBody={"required": True, "content": content(secret, form)},
            )
        },
        "/metrics": {
            "get": operation(
                "Metrics: Prometheus' text if its type is asked for, else a list.",
                "operation",
                {"200": {"description": "Metrics.", "content": metrics}} | refusals(),
            )
        },
        "/openapi.json": {"get": operation("This document.", "operation", ok({"type": "object"}))},
        "/docs": {"get": operation("The page of this document.", "operation", _page())},
        "/ui": {"get": operation("A page to look after the jobs.", "operation", _page())},
        "/ui/data": {"get": operation("What that page shows.", "operation", ok(ref("Overview")) | refusals())},
        "/health/live": {"get": operation("Whether this process answers.", "operation", ok(ref("Live")))},
        "/health/ready": {"get": operation("Whether the jobs answer.", "operation", ok(ref("Ready")) | _not_ready())},
    }


def _welcome() -> dict[str, Any]:
    said = operation("Say welcome.", "operation", {"200": {"description": "Text.", "content": TEXT}} | refusals(429))
    return dict.fromkeys(("get", "post", "put", "patch", "delete", "options"), said)


def _page() -> dict[str, Any]:
    return {"200": {"description": "A page.", "content": _HTML}}


def _not_ready() -> dict[str, Any]:
    return {"503": {"description": "They do not.", "content": content(ref("Ready"))}}


def _schemas() -> Schemas:
    scalar = {"anyOf": [{"type": "number"}, STRING, BOOLEAN]}
    size = {"type": "integer", "minimum": 0}
    sparse = record(
        "shape data indices",
        shape=array(size),
        data=array({"type": "number"}),
        indices=array(array(size)),
    )
    value = {
        "description": "A number, a text, an image in base64, nested lists of numbers or of texts, or a sparse tensor.",
        "anyOf": [scalar, array(ref("Value"), minItems=1), ref("Sparse"), ref("Image")],
    }
    instances = {
        "type": "array",
        "minItems": 1,
        "items": {"type": "object", "minProperties": 1, "additionalProperties": ref("Value")},
        "example": [{"x": [0.0, 1.0]}],
    }
    prediction = {"anyOf": [{"type": "object"}, STRING]}
    codes = {"type": "string", "enum": sorted(ERRORS)}
    error = record("error", error=STRING, code=codes)
    predictions = array(prediction)
    spec = record(
        "name dtype shape",
        name=STRING,
        dtype=STRING,
        shape={"type": ["array", "null"], "items": {"type": ["integer", "null"]}},
    )
    return {
        "Value": value,
        "Sparse": sparse,
        "Image": record("b64", b64=STRING),
        "Instances": record("instances", instances=instances),
        "Predictions": record("predictions", predictions=predictions),
        "Error": error,
        "PredictError": record("error", error=STRING, code=codes, predictions=predictions),
        "Spec": spec,
        "Model": record(
            "modelName modelVersion state inputs outputs",
            modelName=STRING,
            modelVersion=STRING,
            redisInputQueue=STRING,
            state=STRING,
            slots={"type": "object", "additionalProperties": INTEGER},
            engine=STRING,
            inputs=array(ref("Spec")),
            outputs=array(ref("Spec")),
            features=array(STRING),
            postProcessing=STRING,
            inputAlreadyBatched=BOOLEAN,
            maxBatchSize=INTEGER,
        ),
        "Submission": record("instances", instances=instances, model=STRING, callback=STRING),
        "Pending": record("id status", id=STRING, status={"const": "pending"}, answered=INTEGER, instances=INTEGER),
        "Done": record(
            "id status predictions", id=STRING, status={"enum": ["done", "failed"]}, predictions=predictions
        ),
        "Overview": record(
            "time models",
            time={"type": "number"},
            latencyBounds=array({"type": "number"}),
            apiDocs=STRING,
            flinkUrl=STRING,
            models=array(ref("Model")),
        ),
        "Live": record("live", live=BOOLEAN),
        "Ready": record("ready", ready=BOOLEAN, error=STRING),
    }


def document(keys: bool) -> dict[str, Any]:
    """The OpenAPI document.

    Args:
        keys: Whether API keys are needed.
    """
    schemes = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Cluster Serving", "version": version("cluster-serving")},
        "paths": _paths() | openapi_v2.paths(),
        "components": {"schemas": _schemas() | openapi_v2.schemas()},
    }
    if keys:
        made["components"]["securitySchemes"] = schemes
        made["security"] = [{name: []} for name in schemes]
    return made


def routes(front: FrontEnd) -> list[Route]:
    """The document and its page."""
    described = document(front.keys is not None)
    page = files("cluster_serving.frontend").joinpath("docs.html").read_text("utf8")

    async def openapi(_: Request) -> Response:
        return Json(described)

    async def docs(_: Request) -> Response:
        return HTMLResponse(page)

    return [Route("/openapi.json", openapi, methods=["GET"]), Route("/docs", docs, methods=["GET"])]
