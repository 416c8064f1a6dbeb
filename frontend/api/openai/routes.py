"""Completions and embeddings in the JSON of OpenAI's API, mapped onto the inputs and outputs of jobs."""

import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cluster_serving.client.pieces import PieceOrRestart, Restarted
from cluster_serving.frontend.api.json_codec import JsonCodec
from cluster_serving.frontend.api.openai import completions, embeddings
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.dataplane import Call, DataPlane, succeeded
from cluster_serving.frontend.errors import ModelNotReady
from cluster_serving.frontend.models.registry import PublishedModel
from cluster_serving.frontend.server.http.call import HttpCall, call_of
from cluster_serving.frontend.server.http.compression import compressed
from cluster_serving.frontend.server.http.events import after_first, event
from cluster_serving.frontend.server.http.merge import merged
from cluster_serving.frontend.server.http.responses import Written, dumps, error_response, read_body
from cluster_serving.protocol.columns import Outcomes
from cluster_serving.protocol.errors import RequestRestarted, ServingError

_DONE = event(b"[DONE]")

A = TypeVar("A", completions.CompletionRequest, embeddings.EmbeddingRequest)
Handler = Callable[[Request], Awaitable[Response]]


def routes(front: FrontEnd) -> list[Route]:
    """Return the routes of the API."""
    api = _OpenAIRoutes(front)
    return [
        Route("/v1/completions", _answered(api.completions), methods=["POST"]),
        Route("/v1/embeddings", _answered(api.embeddings), methods=["POST"]),
    ]


def error_body(error: ServingError) -> dict[str, Any]:
    """Return the JSON of an error; its `type` is one of OpenAI's, and its `code` ours."""
    kind = "invalid_request_error" if error.http_status < 500 else "server_error"
    return {"error": {"message": error.message, "type": kind, "param": None, "code": error.code}}


def _answered(handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except ServingError as error:
            if error.version:
                call_of(request).version = error.version
            return error_response(error, dumps(error_body(error)))

    return answer


class _Codec(JsonCodec[A, list[dict[str, Any]]]):
    protocol = "openai"

    def merge(self, call: Call, model: PublishedModel, asked: A, outcomes: Outcomes) -> list[dict[str, Any]]:
        return [answer if isinstance(answer, dict) else {"ranking": answer} for answer in succeeded(outcomes)]


@dataclass(frozen=True, slots=True)
class _Completions(_Codec[completions.CompletionRequest]):
    id: str
    created: int

    decode = staticmethod(completions.read)

    def started(self, model: PublishedModel) -> dict[str, Any]:
        """Return the fields that an answer begins with, and each piece of it."""
        return {"id": self.id, "object": "text_completion", "created": self.created, "model": model.name}

    def encode(
        self, model: PublishedModel, asked: completions.CompletionRequest, answer: list[dict[str, Any]]
    ) -> bytes:
        return dumps(self.started(model) | completions.whole(answer))


class _Embeddings(_Codec[embeddings.EmbeddingRequest]):
    decode = staticmethod(embeddings.read)

    def encode(self, model: PublishedModel, asked: embeddings.EmbeddingRequest, answer: list[dict[str, Any]]) -> bytes:
        return embeddings.write(answer, asked, model.name)


class _OpenAIRoutes:
    def __init__(self, front: FrontEnd) -> None:
        self._front = front
        self._plane = DataPlane(front)

    async def completions(self, request: Request) -> Response:
        call, codec = call_of(request), _Completions(f"cmpl-{uuid.uuid4().hex}", int(time.time()))
        asked, model = await self._asked(call, codec)
        if not asked.stream:
            return await compressed(call, Written(await self._plane.answer(call, codec, model, asked)))
        pieces = merged(self._plane.streams(call, codec, model, asked))
        return await after_first(call, _chunks(call, codec.started(model), pieces))

    async def embeddings(self, request: Request) -> Response:
        call, codec = call_of(request), _Embeddings()
        asked, model = await self._asked(call, codec)
        return await compressed(call, Written(await self._plane.answer(call, codec, model, asked)))

    async def _asked(self, call: HttpCall, codec: _Codec[A]) -> tuple[A, PublishedModel]:
        """Read the body of a request, and find its model."""
        body = await read_body(call, self._front.options)
        asked = await self._plane.read(codec, body, await self._front.registry.described())
        model = await self._plane.find(call, codec.protocol, asked.model)
        self._front.check(model, needs_signature=True)
        if not asked.records:
            raise ModelNotReady(f"model {model.name!r} is not ready: {model.state}")
        return asked, model


async def _chunks(
    call: HttpCall, started: Mapping[str, Any], pieces: AsyncGenerator[tuple[int, PieceOrRestart], None]
) -> AsyncGenerator[bytes, None]:
    """Yield the events of a completion; an error after the first piece is an event, too."""
    texts: dict[int, str] = {}
    reasons: dict[int, str] = {}
    begun = False
    try:
        async with aclosing(pieces):
            async for index, piece in pieces:
                if isinstance(piece, Restarted):
                    if texts.pop(index, ""):
                        # Nothing in this API takes a text back.
                        raise RequestRestarted("the completion began anew after a failure; send the request again")
                    continue
                call.version = piece.version or ""
                text, reason = completions.of_piece(piece.outputs)
                reasons[index] = reason or reasons.get(index, "")
                texts[index] = "text" if text else texts.get(index, "")
                if text:
                    begun = True
                    yield event(dumps({**started, "choices": [completions.choice(index, text, None)]}))
        for index in sorted(reasons):
            begun = True
            yield event(dumps({**started, "choices": [completions.choice(index, "", reasons[index] or "stop")]}))
    except ServingError as error:
        if not begun:
            raise
        yield event(dumps(error_body(error)))
    yield _DONE
