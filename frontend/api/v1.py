"""The v1 protocol of KServe, which is the REST API of TensorFlow Serving: the paths below `/v1/models`."""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cluster_serving.frontend.api.json_codec import JsonCodec, endpoint
from cluster_serving.frontend.api.json_text import FILE_IN_INSTANCES, check_names, parse
from cluster_serving.frontend.api.original import instances, predictions
from cluster_serving.frontend.api.v2.service import V2Service
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.dataplane import DecodedRequest
from cluster_serving.frontend.errors import MethodNotAllowed, ModelNotReady, NotSupported, PathNotFound, without_errors
from cluster_serving.frontend.models.registry import PublishedModel
from cluster_serving.frontend.server.http.error_bodies import error_body
from cluster_serving.frontend.server.http.responses import Json, dumps
from cluster_serving.protocol.columns import Columns
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import MAX_DIMENSIONS, Image
from cluster_serving.protocol.original.json import to_input
from cluster_serving.protocol.results import Outputs
from cluster_serving.protocol.slots import SlotReport, TensorSpec, matched
from cluster_serving.protocol.tensors import Inputs
from cluster_serving.protocol.values import utf8
from cluster_serving.protocol.values.lists import shown

SIGNATURE = "serving_default"
"""The signature of a SavedModel that a job serves."""

VERBS = ("/v1/models/{name}:{verb}", "/v1/models/{name}/versions/{version}:{verb}")
"""Paths of verbs that are not served."""

ANY_METHOD = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

_OTHER_VERBS = ("explain", "classify", "regress")
"""Verbs of KServe and of TensorFlow Serving."""

_STATES = {"READY": "AVAILABLE", "LOADING": "LOADING", "UNAVAILABLE": "END"}


def routes(front: FrontEnd, v2: V2Service) -> list[Route]:
    """Return the routes of the protocol."""
    api, predict = _V1Routes(front, v2), endpoint(front, _Codec())
    made = [Route("/v1/models", api.models, methods=["GET"])]
    for path in ("/v1/models/{name}", "/v1/models/{name}/versions/{version}"):
        made += [
            Route(f"{path}:predict", predict, methods=["POST"]),
            Route(f"{path}:{{verb}}", api.verb, methods=[*ANY_METHOD]),
            Route(path, api.status, methods=["GET"]),
        ]
    return made


class _V1Routes:
    def __init__(self, front: FrontEnd, v2: V2Service) -> None:
        self._front = front
        self._service = v2

    async def models(self, _: Request) -> Response:
        """List the models for KServe, and, in the same object, for clients of OpenAI's API."""
        names = list(await self._front.registry.latest())
        return Json({"models": names, "object": "list", "data": [*map(_openai_model, names)]})

    async def verb(self, request: Request) -> Response:
        """Refuse a verb that is not served, or a method that `:predict` does not have."""
        verb = request.path_params["verb"]
        if verb in _OTHER_VERBS:
            raise NotSupported(f"the verb {verb!r} is not supported here; expected 'predict'")
        if verb != "predict":
            raise PathNotFound(f"there is no verb {verb[:64]!r}; expected 'predict'")
        raise MethodNotAllowed(f"the method {request.method} is not allowed for 'predict', but POST", "POST")

    async def status(self, request: Request) -> Response:
        """Answer for TensorFlow Serving with the state of each version, for KServe with the readiness, for OpenAI."""
        name, version = request.path_params["name"], request.path_params.get("version", "")
        ready = await self._service.model_ready(name, version)
        version = (await self._service.model(name, version)).version if version else ""
        rows = [row for row in await self._service.index() if row["name"] == name and version in ("", row["version"])]
        states = [
            {
                "version": row["version"],
                "state": _STATES[row["state"]],
                "status": {"error_code": "UNAVAILABLE" if row["reason"] else "OK", "error_message": row["reason"]},
            }
            for row in rows
        ]
        content = {"name": name, "ready": ready, "model_version_status": states} | _openai_model(name)
        fault = {} if ready else error_body(ModelNotReady(f"model {name!r} is not ready"), request.url.path)
        return Json(content | fault, 503 if fault else 200)


@dataclass(frozen=True, slots=True)
class _Asked(DecodedRequest):
    by_column: bool


class _Codec(JsonCodec[_Asked, Sequence[Outputs]]):
    protocol = "kserve_v1"

    def decode(self, body: bytes, most: int, described: SlotReport) -> _Asked:
        by_column, records = read(body, most, described)
        return _Asked(records, by_column)

    def encode(self, model: PublishedModel, asked: _Asked, answer: Sequence[Outputs]) -> bytes:
        return write(answer, asked.by_column, model.described is not None and model.described.already_batched)


def read(body: bytes, most: int, report: SlotReport) -> tuple[bool, Sequence[Inputs]]:
    """Read the body of a request.

    Returns:
        True if it has columns (`inputs`) and not rows (`instances`), and its records.

    Raises:
        InvalidInput: If the body has another form, or does not fit the model.
        RequestTooLarge: If it has too many values or rows.
    """
    content = parse(body, FILE_IN_INSTANCES)
    check_names(content, ("instances", "inputs", "signature_name"))
    signature = content.get("signature_name")
    # TensorFlow Serving takes an empty one for the default, too.
    if signature not in (None, "", SIGNATURE):
        raise InvalidInput(f"signature_name is {shown(signature)}; a job serves {SIGNATURE!r} alone")
    by_column = "inputs" in content
    if by_column == ("instances" in content):
        raise InvalidInput(f"the body has {'both' if by_column else 'none'} of 'instances' and 'inputs'; expected one")
    rows = _rows(content["inputs"], report.inputs) if by_column else content["instances"]
    named = [_named(index, row, report) for index, row in enumerate(instances.instances_of({"instances": rows}, most))]
    specs = matched(named[0], report.inputs)
    if singles := {name for name, spec in specs.items() if spec.record_shape == () and (by_column or spec.column)}:
        named = [{name: _single(value) if name in singles else value for name, value in row.items()} for row in named]
    records = instances.to_records(named, report, report.already_batched)
    return by_column, records if isinstance(records, Columns) else without_errors(records)


def write(answers: Sequence[Outputs], by_column: bool, batched: bool) -> bytes:
    """Write the answers as rows (`predictions`) or columns (`outputs`); of one output, the values without its name.

    If they are `batched`, each answer is a batch of one record.
    """
    if batched:
        answers = [
            answer if isinstance(answer, list) else {name: array[0, ...] for name, array in answer.items()}
            for answer in answers
        ]
    values = predictions.values(answers)
    if by_column and isinstance(values[0], dict):
        return dumps({"outputs": {name: [value[name] for value in values] for name in values[0]}})
    return dumps({"outputs" if by_column else "predictions": values})


def _rows(columns: Any, specs: Sequence[TensorSpec]) -> list[Any]:
    if not isinstance(columns, dict):
        columns = {_only(specs, "'inputs'"): columns}
    for name, column in columns.items():
        if not isinstance(column, list):
            raise InvalidInput(f"the column {name!r} of 'inputs' is {shown(column)}; expected a list, the batch")
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) != 1 or not all(sizes.values()):
        raise InvalidInput(
            f"'inputs' has columns of the sizes {reprlib.repr(sizes)}; expected lists of one length, the batch"
        )
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _named(index: int, row: Any, report: SlotReport) -> dict[str, Any]:
    if not isinstance(row, dict) or _is_b64(row):
        row = {_only(report.inputs, f"instances[{index}]"): row}
    texts = {spec.name for spec in report.inputs if spec.dtype == "str"}
    return {name: _texts(name, value) if name in texts else value for name, value in row.items()}


def _single(value: Any) -> Any:
    """Return the value of a list of one, which is [n, 1] for an input of [n]."""
    return value[0] if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], list) else value


def _only(specs: Sequence[TensorSpec], place: str) -> str:
    if len(specs) != 1:
        raise InvalidInput(f"{place} has no names; the model expects {', '.join(map(str, specs)) or 'named inputs'}")
    return specs[0].name


def _is_b64(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() == {"b64"}


def _texts(name: str, value: Any, depth: int = MAX_DIMENSIONS) -> Any:
    """Decode the objects `{"b64": …}` in a value for a model of strings."""
    if isinstance(value, list) and depth:
        return [_texts(name, item, depth - 1) for item in value]
    if not _is_b64(value):
        return value
    image = to_input(name, value)
    if not isinstance(image, Image):
        return value
    if problem := utf8.fault(image.data):
        raise InvalidInput(f"input {name!r} takes text, and the content of a 'b64' is not text: {problem}")
    return image.data.decode()


def _openai_model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "cluster-serving"}
