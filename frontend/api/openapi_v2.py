"""The v2 protocol in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from cluster_serving.frontend.api.openapi_terms import (
    BOOLEAN,
    INTEGER,
    JSON,
    MODEL,
    OF_BODIES,
    OF_PREDICTIONS,
    STRING,
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
from cluster_serving.frontend.api.v2 import datatypes
from cluster_serving.frontend.api.v2.body import HEADER_LENGTH

_TAG = "v2"
_BINARY = "application/octet-stream"
_BYTES = content({"type": "string", "format": "binary"}, _BINARY)
_LENGTH = "Bytes of JSON, if binary tensor data follows it."
_DATATYPES = [*datatypes.DTYPES, datatypes.BYTES]


def paths() -> Paths:
    """The paths of the protocol."""
    made: Paths = {
        "/v2": _get("Name, version and extensions of the server.", ok(ref("V2Server")) | refusals()),
        "/v2/health/live": _get("Whether this process answers.", ok(ref("Live"))),
        "/v2/health/ready": _get("Whether the jobs answer.", ok(ref("V2Ready")) | _not_ready("V2Ready")),
        "/v2/repository/index": {
            "post": operation(
                "All models and their states.",
                _TAG,
                ok(array(ref("V2IndexRow"))) | refusals(*OF_BODIES),
                requestBody={"required": False, "content": content(record("", ready=BOOLEAN))},
            )
        },
        "/v2/models/stats": _get("What was asked of all models.", ok(ref("V2Statistics")) | refusals()),
    }
    for path, which in (
        ("/v2/models/{name}", [MODEL]),
        ("/v2/models/{name}/versions/{version}", [MODEL, VERSION]),
    ):
        made |= {
            path: _get("Inputs and outputs of a model.", ok(ref("V2Model")) | refusals(404), which),
            f"{path}/ready": _get(
                "Whether its job answers.", ok(ref("V2ModelReady")) | refusals(404) | _not_ready("V2ModelReady"), which
            ),
            f"{path}/config": _get(
                "Its configuration, as Triton words it.", ok(ref("V2Config")) | refusals(404), which
            ),
            f"{path}/stats": _get("What was asked of it.", ok(ref("V2Statistics")) | refusals(404), which),
            f"{path}/infer": {"post": _infer(which)},
        }
    return made


def schemas() -> Schemas:
    """The schemas that the paths refer to."""
    parameters: dict[str, Any] = {"type": "object"}
    size = {"type": "integer", "minimum": 0}
    data = {"description": "The elements, flat or nested.", "type": "array"}
    tensor = {"name": {"type": "string", "minLength": 1}, "datatype": {"enum": _DATATYPES}}
    described = record(
        "name datatype shape",
        name=STRING,
        datatype={"description": "Empty if the model does not say.", "type": "string"},
        shape=array(INTEGER),
    )
    configured = record("name data_type dims", name=STRING, data_type=STRING, dims=array(INTEGER))
    counter = record("count ns", count=INTEGER, ns=INTEGER)
    row = record(
        "name version inference_count execution_count inference_stats",
        name=STRING,
        version=STRING,
        last_inference=INTEGER,
        inference_count=INTEGER,
        execution_count=INTEGER,
        inference_stats={"type": "object", "additionalProperties": counter},
        batch_stats=array({"type": "object"}),
    )
    return {
        "V2Server": record("name version extensions", name=STRING, version=STRING, extensions=array(STRING)),
        "V2Ready": record("ready", ready=BOOLEAN),
        "V2ModelReady": record("name ready", name=STRING, ready=BOOLEAN),
        "V2IndexRow": record("name version state", name=STRING, version=STRING, state=STRING, reason=STRING),
        "V2Model": record(
            "name versions platform inputs outputs",
            name=STRING,
            versions=array(STRING),
            platform=STRING,
            inputs=array(described),
            outputs=array(described),
        ),
        "V2Config": record(
            "name platform max_batch_size input output",
            name=STRING,
            platform=STRING,
            backend=STRING,
            max_batch_size=INTEGER,
            input=array(configured),
            output=array(configured),
            dynamic_batching={"type": "object"},
        ),
        "V2Statistics": record("model_stats", model_stats=array(row)),
        "V2InferRequest": record(
            "inputs",
            id=STRING,
            parameters=parameters,
            inputs=array(
                record("name datatype shape", **tensor, shape=array(size), data=data, parameters=parameters),
                minItems=1,
            ),
            outputs=array(record("name", name=tensor["name"], parameters=parameters)),
        )
        | {"example": {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [0.0, 1.0, 2.0]}]}},
        "V2InferResponse": record(
            "model_name model_version outputs",
            model_name=STRING,
            model_version=STRING,
            id=STRING,
            outputs=array(record("name datatype shape", **tensor, shape=array(size), data=data, parameters=parameters)),
        ),
    }


def _get(summary: str, responses: dict[str, Any], parameters: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"get": operation(summary, _TAG, responses, parameters=parameters or [])}


def _not_ready(schema: str) -> dict[str, Any]:
    # A refusal of another cause has the form of all errors.
    return {"503": {"description": "They do not.", "content": content({"anyOf": [ref(schema), ref("Error")]})}}


def _infer(which: list[dict[str, Any]]) -> dict[str, Any]:
    length = parameter(HEADER_LENGTH, "header", _LENGTH, type="integer", minimum=0)
    encoding = parameter(
        "Content-Encoding", "header", "How the body is compressed.", type="string", enum=["identity", "gzip", "deflate"]
    )
    answer = {
        "description": "The outputs; as binary data if the request asks for that.",
        "headers": {HEADER_LENGTH: {"description": _LENGTH, "schema": INTEGER}},
        "content": content(ref("V2InferResponse"), JSON) | _BYTES,
    }
    return operation(
        "Predict a batch.",
        _TAG,
        {"200": answer} | refusals(*OF_PREDICTIONS),
        parameters=[*which, TIMEOUT, length, encoding],
        requestBody={"required": True, "content": content(ref("V2InferRequest"), JSON) | _BYTES},
    )
