"""The Open Inference Protocol v2 over HTTP: the paths below `/v2`."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cluster_serving.frontend.api.bodies import read_body
from cluster_serving.frontend.api.json_text import check_names, parse, writing_cost
from cluster_serving.frontend.api.v2 import body as v2_body
from cluster_serving.frontend.api.v2 import metadata as v2_metadata
from cluster_serving.frontend.api.v2.batch import RecordsRequest
from cluster_serving.frontend.api.v2.codec import V2Codec
from cluster_serving.frontend.api.v2.request import InferRequest, InferResponse
from cluster_serving.frontend.api.v2.service import V2Service, unsupported
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.dataplane import DataPlane
from cluster_serving.frontend.models.registry import PublishedModel
from cluster_serving.frontend.server.http.call import call_of
from cluster_serving.frontend.server.http.compression import compressed
from cluster_serving.frontend.server.http.responses import Json, Written
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.hosting.control import LOAD, UNLOAD
from cluster_serving.protocol.slots import SlotReport
from cluster_serving.protocol.values.lists import shown

UNSUPPORTED = (
    "/v2/trace/setting",
    "/v2/models/{name}/trace/setting",
    "/v2/logging",
    "/v2/systemsharedmemory/{path:path}",
    "/v2/cudasharedmemory/{path:path}",
)
"""Paths of Triton's clients that are answered with `NotSupported`."""

_MAX_QUESTION_BYTES = 64 << 10
"""Most bytes of a body without tensors."""


def routes(front: FrontEnd, v2: V2Service) -> list[Route]:
    """Return the routes of the protocol."""
    api = _V2Routes(front, v2)
    made = [
        Route("/v2", Json(v2_metadata.server()), methods=["GET"]),
        Route("/v2/health/live", Json({"live": True}), methods=["GET"]),
        Route("/v2/health/ready", api.ready, methods=["GET"]),
        Route("/v2/repository/index", api.index, methods=["POST"]),
        Route("/v2/models/stats", api.statistics, methods=["GET"]),
        *(
            Route(f"/v2/repository/models/{{name}}/{action}", partial(api.control, action), methods=["POST"])
            for action in (LOAD, UNLOAD)
        ),
    ]
    for path in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        made += [
            Route(path, api.metadata, methods=["GET"]),
            Route(f"{path}/ready", api.model_ready, methods=["GET"]),
            Route(f"{path}/config", api.config, methods=["GET"]),
            Route(f"{path}/stats", api.statistics, methods=["GET"]),
            Route(f"{path}/infer", api.infer, methods=["POST"]),
        ]
    return [*made, *(Route(path, api.unsupported, methods=["GET", "POST"]) for path in UNSUPPORTED)]


@dataclass(frozen=True, slots=True)
class _Codec(V2Codec):
    json_length: int
    protocol = "v2"

    def cost(self, body: Any) -> tuple[int, int]:
        return (0, 0) if isinstance(body, InferRequest) else (v2_body.cost(body, self.json_length), len(body))

    def parse(self, body: bytes) -> InferRequest:
        return v2_body.decode(body, self.json_length)

    def opened(self, body: bytes) -> Any:
        return V2Codec.opened(self, body) if self.json_length else body

    def decode(self, body: Any, most: int, described: SlotReport) -> RecordsRequest:
        return V2Codec.decode(self, body if self.json_length else v2_body.raw(body, described), most, described)

    def encoding_cost(self, asked: RecordsRequest, answer: InferResponse) -> int:
        outputs = answer.outputs
        binary = v2_body.binary_outputs(asked.request, outputs)
        # Binary numbers are copied at once.
        return writing_cost(
            [{name: array for name, array in outputs.items() if name not in binary or array.dtype == object}]
        )

    def encode(self, model: PublishedModel, asked: RecordsRequest, answer: InferResponse) -> tuple[bytes, int | None]:
        return v2_body.encode(answer, v2_body.binary_outputs(asked.request, answer.outputs))


class _V2Routes:
    def __init__(self, front: FrontEnd, v2: V2Service) -> None:
        self._front = front
        self._service = v2
        self._plane = DataPlane(front)

    async def ready(self, _: Request) -> Response:
        ready = await self._service.ready()
        return Json({"ready": ready}, 200 if ready else 503)

    async def index(self, request: Request) -> Response:
        asked = await self._asked(request, "ready")
        ready = asked.get("ready", False)
        if type(ready) is not bool:
            raise InvalidInput(f"'ready' is {shown(ready)}; expected true or false")
        return Json(await self._service.index(ready))

    async def control(self, action: str, request: Request) -> Response:
        asked = await self._asked(request, "parameters")
        parameters = asked.get("parameters", {})
        if not isinstance(parameters, dict):
            raise InvalidInput(f"'parameters' is {shown(parameters)}; expected an object")
        call = call_of(request)
        timeout = self._front.limited(call.timeout)
        await call.unless_gone(self._service.control(request.path_params["name"], action, parameters, timeout))
        return Json({})

    async def metadata(self, request: Request) -> Response:
        return Json(await self._service.metadata(*_model(request)))

    async def model_ready(self, request: Request) -> Response:
        name, version = _model(request)
        ready = await self._service.model_ready(name, version)
        return Json({"name": name, "ready": ready}, 200 if ready else 503)

    async def config(self, request: Request) -> Response:
        return Json(await self._service.config(*_model(request)))

    async def statistics(self, request: Request) -> Response:
        return Json(await self._service.statistics(*_model(request)))

    async def unsupported(self, request: Request) -> Response:
        raise unsupported(request.url.path)

    async def _asked(self, request: Request, known: str) -> dict[str, Any]:
        body = await read_body(call_of(request), self._front.options, _MAX_QUESTION_BYTES)
        asked = parse(body) if body else {}
        check_names(asked, (known,))
        return asked

    async def infer(self, request: Request) -> Response:
        call = call_of(request)
        model = await self._plane.find(call, _Codec.protocol, *_model(request))
        body = await read_body(call, self._front.options)
        codec = _Codec(v2_body.json_length(body, call.header(v2_body.HEADER_LENGTH_KEY)))
        content, json_length = await self._plane.infer(call, codec, model, codec.opened(body))
        if json_length is None:
            return await compressed(call, Written(content))
        headers = {v2_body.HEADER_LENGTH: str(json_length)}
        return await compressed(call, Response(content, 200, headers, "application/octet-stream"))


def _model(request: Request) -> tuple[str, str]:
    return request.path_params.get("name", ""), request.path_params.get("version", "")
