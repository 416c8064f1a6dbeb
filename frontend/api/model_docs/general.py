"""The document `/openapi.json`, which the page `/docs` shows: all paths, with examples that a model here answers."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cluster_serving.frontend.api import docs
from cluster_serving.frontend.api.model_docs import examples
from cluster_serving.frontend.api.model_docs.document import OPENAI, PREDICTIONS, response, schema_of
from cluster_serving.frontend.api.model_docs.schemas import Schema
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.models.registry import ModelRegistry, PublishedModel
from cluster_serving.protocol.compat import timeout as time_limit
from cluster_serving.protocol.errors import ServingError

_PATIENCE_S = 2.0
"""Most seconds to wait for the reports of the models: the document needs no Redis."""

_OF_ALL = "/predict"
"""The path of the model of requests that name no model."""

_OPERATIONS = {path: operation for operation, path in OPENAI.items()}
_OF_MODELS = (*PREDICTIONS, "Submission", "Completions", "ChatCompletions", "EmbeddingInput")
"""Schemas of bodies that hold inputs of a model."""

_PARAMETER = "#/components/parameters/"


def routes(front: FrontEnd) -> list[Route]:
    """Return the route of the document."""
    general = docs.document(front.admission.has_keys)
    of_any = response(general)
    # Written again once the reports of the models have been read again.
    written: tuple[Mapping[str, PublishedModel], Response] = {}, of_any

    async def answer(request: Request) -> Response:
        nonlocal written
        # Nobody without a key learns which models there are.
        if front.admission.has_keys and not request.scope["call"].client:
            return of_any
        latest = await _latest(front.registry)
        if not latest:
            return of_any
        if latest is not written[0]:
            loaded = [model for model in latest.values() if model.loaded]
            written = latest, response(document(general, loaded, front.registry.default_name()))
        return written[1]

    return [Route("/openapi.json", answer, methods=["GET"])]


async def _latest(registry: ModelRegistry) -> Mapping[str, PublishedModel]:
    """Return the models by name; none if Redis cannot tell."""
    try:
        async with time_limit(_PATIENCE_S):
            return await registry.latest()
    except (ServingError, TimeoutError):
        return {}


def document(general: Schema, models: Sequence[PublishedModel], default: str) -> Schema:
    """Return the document of all paths, with examples that one of the models answers.

    Args:
        general: The document with examples for any model.
        models: Models that have loaded; without any, the document is returned as it is.
        default: Model of requests that name no model; the first choice.
    """
    if not models:
        return general
    ordered = sorted(models, key=lambda model: (model.name != default, model.name))
    shown = next((model for model in ordered if model.loaded and examples.bodies(model.loaded)), None)
    sent = examples.bodies(shown.loaded) if shown and shown.loaded else {}
    if shown and sent:
        sent["Submission"] = {"model": shown.name, **sent["Instances"]}
    asked: Schema = {}
    for model in ordered:
        asked = examples.openai_bodies(model.loaded, model.name) | asked if model.loaded else asked
    in_paths = {"ModelName": shown.name, "ModelVersion": shown.version} if shown else {}
    paths = {path: {**methods} for path, methods in general["paths"].items()}
    for path, methods in paths.items():
        if "get" in methods:
            methods["get"] = _with_parameters(general, methods["get"], in_paths)
        if (name := schema_of(methods.get("post", {}))) in _OF_MODELS:
            is_theirs = path != _OF_ALL or in_paths.get("ModelName") == default
            example = asked.get(_OPERATIONS.get(path, ""), sent.get(name) if is_theirs else None)
            methods["post"] = _with_example(_with_parameters(general, methods["post"], in_paths), example)
    return {**general, "paths": paths, "components": _without_examples(general["components"])}


def _with_example(operation: Schema, example: Any) -> Schema:
    """Return an operation whose body has an example; None for no example."""
    content = operation["requestBody"]["content"]
    body = content["application/json"] if example is None else content["application/json"] | {"example": example}
    return operation | {"requestBody": operation["requestBody"] | {"content": content | {"application/json": body}}}


def _with_parameters(general: Schema, operation: Schema, in_paths: Mapping[str, str]) -> Schema:
    """Return an operation whose parameters of the path have examples."""
    if "parameters" not in operation:
        return operation
    known = general["components"]["parameters"]
    names = [each.get("$ref", "").removeprefix(_PARAMETER) for each in operation["parameters"]]
    parameters = [
        known[name] | {"example": in_paths[name]} if name in in_paths else each
        for name, each in zip(names, operation["parameters"], strict=True)
    ]
    return operation | {"parameters": parameters}


def _without_examples(components: Schema) -> Schema:
    """Return the components without the examples of what depends on a model."""
    schemas = {
        name: {key: value for key, value in schema.items() if key != "example" or name not in _OF_MODELS}
        for name, schema in components["schemas"].items()
    }
    return components | {"schemas": schemas}
