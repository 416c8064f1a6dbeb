"""The v1 protocol of KServe, which is the REST API of TensorFlow Serving: the paths below `/v1/models`."""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cluster_serving.frontend.api.json_codec import JsonCodec, endpoint
from cluster_serving.frontend.api.json_text import parse, writing_cost
from cluster_serving.frontend.api.original import instances, predictions
from cluster_serving.frontend.api.v2.service import V2Service
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.dataplane import Asked, Call, Outcomes, succeeded
from cluster_serving.frontend.errors import without_errors
from cluster_serving.frontend.models.registry import ServedModel
from cluster_serving.frontend.server.responses import Json, dumps
from cluster_serving.protocol import utf8
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import MAX_DIMENSIONS, Image
from cluster_serving.protocol.lists import shown
from cluster_serving.protocol.original.json import to_input
from cluster_serving.protocol.results import Outputs
from cluster_serving.protocol.slots import SlotReport, TensorSpec

SIGNATURE = "serving_default"
"""The signature of a SavedModel that a job serves."""

_STATES = {"READY": "AVAILABLE", "LOADING": "LOADING", "UNAVAILABLE": "END"}


def routes(front: FrontEnd, v2: V2Service) -> list[Route]:
    """Return the routes of the protocol."""
    api, predict = _V1Routes(front, v2), endpoint(front, V1Codec())
    made = [Route("/v1/models", api.models, methods=["GET"])]
    for path in ("/v1/models/{name}", "/v1/models/{name}/versions/{version}"):
        made += [
            Route(f"{path}:predict", predict, methods=["POST"]),
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
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "cluster-serving"} for name in names]
        return Json({"models": names, "object": "list", "data": data})

    async def status(self, request: Request) -> Response:
        """Answer for TensorFlow Serving with the state of each version, and for KServe with the readiness."""
        name, version = _model(request)
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
        return Json({"name": name, "ready": ready, "model_version_status": states}, 200 if ready else 503)


@dataclass(frozen=True, slots=True)
class _Asked(Asked):
    """A request.

    Attributes:
        by_column: True if it has columns (`inputs`) and not rows (`instances`).
    """

    by_column: bool


class Answer(NamedTuple):
    """Outputs of all records, which are written by column or by row; `batched`, each is a batch of one record."""

    outputs: Sequence[Outputs]
    by_column: bool
    batched: bool


class V1Codec(JsonCodec[_Asked, Answer]):
    """The bodies of `:predict`."""

    protocol = "kserve_v1"

    def decode(self, body: bytes, most: int, described: SlotReport) -> _Asked:
        """Read the body of a request.

        Raises:
            InvalidInput: If the body has another form, or does not fit the model.
            RequestTooLarge: If it has too many values or rows.
        """
        content = parse(body)
        signature = content.get("signature_name") or SIGNATURE
        if signature != SIGNATURE:
            raise InvalidInput(f"signature_name is {str(signature)[:64]!r}; a job serves {SIGNATURE!r} alone")
        by_column = "inputs" in content
        if by_column == ("instances" in content):
            raise InvalidInput(
                f"the body has {'both' if by_column else 'none'} of 'instances' and 'inputs'; expected one"
            )
        rows = _rows(content["inputs"], described.inputs) if by_column else content["instances"]
        found = instances.instances_of({"instances": rows}, most)
        named = [_named(index, row, described) for index, row in enumerate(found)]
        records = instances.to_records(named, described, described.already_batched)
        return _Asked(without_errors(records), by_column)

    def merge(self, call: Call, model: ServedModel, asked: _Asked, outcomes: Outcomes) -> Answer:
        """Return the outputs of all records, or raise the first error."""
        batched = model.described is not None and model.described.already_batched
        return Answer(succeeded(outcomes), asked.by_column, batched)

    def encoding_cost(self, answer: Answer) -> int:
        """Return the cost of writing the outputs."""
        return writing_cost(answer.outputs)

    def encode(self, answer: Answer) -> bytes:
        """Write rows (`predictions`) or columns (`outputs`); of one output, the values without its name."""
        outputs = answer.outputs
        if answer.batched:
            outputs = [
                one if isinstance(one, list) else {name: array[0, ...] for name, array in one.items()}
                for one in outputs
            ]
        values = [predictions.written(one, "json")["value"] for one in outputs]
        if answer.by_column and isinstance(values[0], dict):
            return dumps({"outputs": {name: [value[name] for value in values] for name in values[0]}})
        return dumps({"outputs" if answer.by_column else "predictions": values})


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
        raise InvalidInput(f"input {name!r} takes text, and the content of a 'b64' is none: {problem}")
    return image.data.decode()


def _model(request: Request) -> tuple[str, str]:
    return request.path_params["name"], request.path_params.get("version", "")
