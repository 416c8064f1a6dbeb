"""The documents `/models/<name>/openapi.json` and `/models/<name>/versions/<version>/openapi.json`."""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cluster_serving.frontend.api import docs
from cluster_serving.frontend.api.model_docs import examples, schemas
from cluster_serving.frontend.api.model_docs.schemas import Schema
from cluster_serving.frontend.api.v2.metadata import is_ranked, outputs
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.models.registry import PublishedModel
from cluster_serving.frontend.server.http.responses import Json, dumps
from cluster_serving.frontend.server.http.validated import Validated
from cluster_serving.protocol.slots import SlotReport

_VERSION = "/versions/{version}"

_OPERATIONS = {
    "predict": "/models/{{name}}{}/predict",
    "predictV1": "/v1/models/{{name}}{}:predict",
    "inferV2": "/v2/models/{{name}}{}/infer",
}
"""Operation of a model → its path in `openapi.yaml`, with a place for `_VERSION`."""

OPENAI = {"completions": "/v1/completions", "chat": "/v1/chat/completions", "embeddings": "/v1/embeddings"}
"""Operation of OpenAI's API → its path, in the document of a model that answers it."""

# The form of predictions is that of the front end: each form has a schema of its own.
_LEFT_OUT = [{"$ref": f"#/components/parameters/{name}"} for name in ("ModelName", "ModelVersion", "ResponseFormat")]
PREDICTIONS = ("Instances", "V1Request", "V2InferRequest")
_REFERENCE = re.compile(r'"\$ref": "#/components/(\w+)/(\w+)"')


def routes(front: FrontEnd) -> list[Route]:
    """Return the routes of the documents."""

    async def answer(request: Request) -> Response:
        name, version = request.path_params["name"], request.path_params.get("version", "")
        model = await front.registry.model(name, version)
        as_texts = front.options.response_format != "json"
        return response(document(docs.document(front.admission.has_keys), model, version, as_texts))

    paths = ("/models/{name}/openapi.json", f"/models/{{name}}{_VERSION}/openapi.json")
    return [Route(path, answer, methods=["GET"]) for path in paths]


def response(content: Schema) -> Response:
    """Return a document as a response."""
    return Validated(dumps(content), Json.media_type)


def document(general: Mapping[str, Any], model: PublishedModel, version: str = "", as_texts: bool = False) -> Schema:
    """Return the document of a model.

    Args:
        general: Document of the front end, whose operations and schemas it takes over.
        model: The model. Until a slot has loaded it once, the schemas are those of any model.
        version: Version that the paths name; empty for paths without one.
        as_texts: The predictions of `/predict` are texts in a form of the original.
    """
    report = model.described
    known = report is not None and bool(report.inputs)
    own = _schemas(general, report, as_texts) if known and report else _without_examples(general)
    asked = examples.openai_bodies(report, model.name) if known and report and not version else {}
    paths = {
        _filled(template, model.name, version): {"post": _operation(general, template, version, operation)}
        for operation, template in _OPERATIONS.items()
    }
    for operation, example in sorted(asked.items()):
        path = OPENAI[operation]
        paths[path] = {"post": {**general["paths"][path]["post"], "operationId": operation}}
        name = schema_of(paths[path]["post"])
        own[name] = {**general["components"]["schemas"][name], "example": example}
    components = {**general["components"], "schemas": {**general["components"]["schemas"], **own}}
    info = {"title": f"Model {model.name}", "version": model.version, "description": _about(report if known else None)}
    made: Schema = {"openapi": general["openapi"], "info": info, "paths": paths, "components": _used(paths, components)}
    if "securitySchemes" in components:
        made["components"]["securitySchemes"] = components["securitySchemes"]
    used = {tag for methods in paths.values() for tag in methods["post"]["tags"]}
    tags = [tag for tag in general["tags"] if tag["name"] in used]
    return {**made, "tags": tags, "servers": general["servers"], "security": general["security"]}


def schema_of(operation: Mapping[str, Any]) -> str:
    """Return the name of the schema of the body of an operation, as JSON; empty if it has none."""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    return str(body.get("schema", {}).get("$ref", "")).rpartition("/")[2]


def _filled(template: str, name: str, version: str) -> str:
    path = template.format(_VERSION if version else "")
    return path.format(name=quote(name, safe=""), version=quote(version, safe=""))


def _operation(general: Mapping[str, Any], template: str, version: str, operation: str) -> Schema:
    found = general["paths"][template.format(_VERSION if version else "")]["post"]
    parameters = [each for each in found["parameters"] if each not in _LEFT_OUT]
    return {**found, "operationId": operation, "parameters": parameters}


def _about(report: SlotReport | None) -> str:
    if report is None:
        return "The inputs are not known: no slot has loaded the model yet, or it does not declare them."
    return f"Inputs: {', '.join(map(str, report.inputs))}. Outputs: {', '.join(map(str, report.outputs))}."


def _without_examples(general: Mapping[str, Any]) -> Schema:
    found = {name: dict(general["components"]["schemas"][name]) for name in PREDICTIONS}
    for schema in found.values():
        del schema["example"]
    return found


def _schemas(general: Mapping[str, Any], report: SlotReport, as_texts: bool) -> Schema:
    batched = report.already_batched
    row = schemas.record({spec.name: schemas.of_input(spec, batched) for spec in report.inputs})
    prediction: Schema = {"type": "string"} if as_texts else schemas.record({"value": _answer(report, batched)})
    v1_row = {spec.name: schemas.of_input(spec) for spec in report.inputs}
    own = {
        "Instances": _body("instances", schemas.listed(_row(row))),
        "Predictions": _body("predictions", {"type": "array", "items": prediction}),
        "V1Request": _body("instances", schemas.listed(_single(v1_row))),
        "V1Response": _body("predictions", {"type": "array", "items": _answer(report, False)}),
        **_v2(general["components"]["schemas"], report),
    }
    for name, body in examples.bodies(report).items():
        own[name] = {**own[name], "example": body}
    return own


def _body(name: str, schema: Schema) -> Schema:
    return schemas.record({name: schema})


def _answer(report: SlotReport, batched: bool) -> Schema:
    """Return the schema of the answer to a record: the value of the only output, or an object."""
    if is_ranked(report):
        count = len(report.outputs)
        rankings = {"type": "array", "items": schemas.ranking(), "minItems": count, "maxItems": count}
        return schemas.ranking() if count == 1 else rankings
    # Of some models, only the answer to the first request tells the outputs.
    return _single({spec.name: schemas.of_output(spec, batched) for spec in outputs(report)}) if report.outputs else {}


def _row(fields: Schema) -> Schema:
    """Return the schema of an instance: a model of one input takes its value without the name."""
    values = [*fields["properties"].values()]
    return {"oneOf": [fields, *values]} if len(values) == 1 else fields


def _single(fields: Mapping[str, Schema]) -> Schema:
    return next(iter(fields.values())) if len(fields) == 1 else schemas.record(fields)


def _v2(known: Mapping[str, Any], report: SlotReport) -> Schema:
    count = len(report.inputs)
    forms = [form for spec in report.inputs for form in schemas.v2_inputs(spec)]
    tensors = {"type": "array", "items": schemas.one_of(forms), "minItems": count, "maxItems": count}
    request = known["V2InferRequest"]
    request = {**request, "properties": {**request["properties"], "inputs": tensors}}
    del request["example"]
    response = known["V2InferResponse"]
    if told := outputs(report):
        own = {"type": "array", "items": schemas.v2_output(told), "minItems": len(told)}
        response = {**response, "properties": {**response["properties"], "outputs": own}}
    return {"V2InferRequest": request, "V2InferResponse": response}


def _used(paths: Schema, components: Mapping[str, Any]) -> Schema:
    """Return the components to which the paths lead."""
    used: Schema = {}
    pending: list[Any] = [paths]
    while pending:
        for kind, name in _REFERENCE.findall(json.dumps(pending.pop())):
            if name not in used.setdefault(kind, {}):
                used[kind][name] = components[kind][name]
                pending.append(used[kind][name])
    return used
