"""Completions and embeddings in the JSON of OpenAI's API, mapped onto the inputs and outputs of jobs."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cluster_serving.frontend.api.bodies import read_body
from cluster_serving.frontend.api.openai import batches
from cluster_serving.frontend.api.openai.codecs import (
    A,
    Chat,
    Completions,
    Embeddings,
    OpenAICodec,
    read_request,
)
from cluster_serving.frontend.api.openai.streaming import CompletionStream
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.dataplane import DataPlane
from cluster_serving.frontend.models.registry import PublishedModel
from cluster_serving.frontend.server.http.call import HttpCall, call_of
from cluster_serving.frontend.server.http.compression import compressed
from cluster_serving.frontend.server.http.events import after_first
from cluster_serving.frontend.server.http.merge import merged
from cluster_serving.frontend.server.http.responses import Written


def routes(front: FrontEnd) -> list[Route]:
    """Return the routes of the API."""
    api = _OpenAIRoutes(front)
    return [
        Route("/v1/completions", api.completions, methods=["POST"]),
        Route("/v1/chat/completions", api.chat, methods=["POST"]),
        Route("/v1/embeddings", api.embeddings, methods=["POST"]),
        *batches.routes(front),
    ]


class _OpenAIRoutes:
    def __init__(self, front: FrontEnd) -> None:
        self._front = front
        self._plane = DataPlane(front)

    async def completions(self, request: Request) -> Response:
        return await self._complete(call_of(request), Completions.new())

    async def chat(self, request: Request) -> Response:
        return await self._complete(call_of(request), Chat.new())

    async def _complete(self, call: HttpCall, codec: Completions) -> Response:
        asked, model = await self._asked(call, codec)
        if not asked.stream:
            return await compressed(call, Written(await self._plane.answer(call, codec, model, asked)))
        pieces = merged(self._plane.streams(call, codec, model, asked))
        return await after_first(call, CompletionStream(codec, model, asked).events(call, pieces))

    async def embeddings(self, request: Request) -> Response:
        call, codec = call_of(request), Embeddings()
        asked, model = await self._asked(call, codec)
        return await compressed(call, Written(await self._plane.answer(call, codec, model, asked)))

    async def _asked(self, call: HttpCall, codec: OpenAICodec[A]) -> tuple[A, PublishedModel]:
        """Read the body of a request, and find its model."""
        body = await read_body(call, self._front.options)
        find = partial(self._plane.find, call, codec.protocol)
        return await read_request(self._front, self._plane, codec, body, find)
