"""Protocols whose bodies are JSON."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cluster_serving.frontend.api import json_text
from cluster_serving.frontend.api.bodies import read_body
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.dataplane import A, Codec, DataPlane, R
from cluster_serving.frontend.server.http.call import call_of
from cluster_serving.frontend.server.http.compression import compressed
from cluster_serving.frontend.server.http.responses import Written


class JsonCodec(Codec[A, R]):
    """Base of codecs of JSON; by itself, the answer is the outputs of all records."""

    def cost(self, body: bytes) -> tuple[int, int]:
        """Return the cost of reading JSON."""
        return json_text.reading_cost(body), 0

    def encoding_cost(self, asked: A, answer: Any) -> int:
        """Return the cost of writing outputs as JSON."""
        return json_text.writing_cost(answer)


def endpoint(front: FrontEnd, codec: Codec[A, R]) -> Callable[[Request], Awaitable[Response]]:
    """Return the function that answers the requests of a codec; the path has the name of the model, and its version."""
    plane = DataPlane(front)

    async def answer(request: Request) -> Response:
        call, path = call_of(request), request.path_params
        model = await plane.find(call, codec.protocol, path["name"], path.get("version", ""))
        body = await read_body(call, front.options)
        return await compressed(call, Written(await plane.infer(call, codec, model, body)))

    return answer
