"""Completions and embeddings in the JSON of OpenAI's API, mapped onto the inputs and outputs of jobs."""

import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cluster_serving.client.pieces import PieceOrRestart, Restarted
from cluster_serving.frontend.api.json_text import reading_cost, writing_cost
from cluster_serving.frontend.api.openai import completions, embeddings
from cluster_serving.frontend.api.v2.service import V2Service
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.dataplane import succeeded
from cluster_serving.frontend.errors import ModelNotReady
from cluster_serving.frontend.models.registry import ServedModel
from cluster_serving.frontend.server.call import HttpCall, call_of
from cluster_serving.frontend.server.compression import compressed
from cluster_serving.frontend.server.events import after_first, event
from cluster_serving.frontend.server.merge import merged
from cluster_serving.frontend.server.responses import Json, Written, dumps, error_response, read_body
from cluster_serving.protocol.errors import RequestRestarted, ServingError
from cluster_serving.protocol.slots import SlotReport
from cluster_serving.protocol.tensors import Inputs

_DONE = event(b"[DONE]")

A = TypeVar("A", completions.Asked, embeddings.Asked)
Handler = Callable[[Request], Awaitable[Response]]


def routes(front: FrontEnd, v2: V2Service) -> list[Route]:
    """Return the routes of the API."""
    api = _OpenAIRoutes(front, v2)
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


class _OpenAIRoutes:
    def __init__(self, front: FrontEnd, v2: V2Service) -> None:
        self._front = front
        self._service = v2

    async def completions(self, request: Request) -> Response:
        call = call_of(request)
        asked, model = await self._asked(call, completions.read)
        started = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "created": int(time.time())}
        started["model"] = model.name
        if asked.stream:
            pieces = self._pieces(call, model, asked.records)
            return await after_first(call, _chunks(call, started, pieces))
        outputs = await self._predicted(call, model, asked.records)
        return await compressed(call, Json(started | completions.whole(outputs)))

    async def embeddings(self, request: Request) -> Response:
        call = call_of(request)
        asked, model = await self._asked(call, embeddings.read)
        outputs = await self._predicted(call, model, asked.records)
        answer = await self._front.offload.run(
            partial(embeddings.write, outputs, asked, model.name), holding_gil=writing_cost(outputs)
        )
        return await compressed(call, Written(answer))

    async def _asked(
        self, call: HttpCall, read: Callable[[bytes, int, Mapping[str, SlotReport | None]], A]
    ) -> tuple[A, ServedModel]:
        """Read the body of a request, and find its model."""
        front = self._front
        body = await read_body(call, front.options)
        asked = await front.offload.run(
            partial(read, body, front.options.most_records, await front.registry.described()),
            holding_gil=reading_cost(body),
        )
        model = await front.registry.model(asked.model)
        call.protocol, call.model = "openai", model.name
        front.report_of(model)
        if not asked.records:
            raise ModelNotReady(f"model {model.name!r} is not ready: {model.state}")
        front.metrics.asked("openai", model.name, len(asked.records))
        return asked, model

    async def _predicted(self, call: HttpCall, model: ServedModel, records: Sequence[Inputs]) -> list[dict[str, Any]]:
        front = self._front
        seconds = front.limited(call.timeout)
        work = front.dispatch.predict(model.job, records, seconds, call.priority, model.asked, model.together)
        outcomes, call.version = await call.unless_gone(work)
        answers = succeeded(outcomes)
        return [answer if isinstance(answer, dict) else {"ranking": answer} for answer in answers]

    def _pieces(
        self, call: HttpCall, model: ServedModel, records: Sequence[Inputs]
    ) -> AsyncGenerator[tuple[int, PieceOrRestart], None]:
        front = self._front
        seconds, priority = front.limited(call.timeout), call.priority
        return merged([front.dispatch.stream(model.job, record, seconds, priority, model.asked) for record in records])


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
