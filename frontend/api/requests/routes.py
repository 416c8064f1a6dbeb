"""Requests that are queued now and asked for later: `/v1/requests`.

No front end remembers them: the id names the job and the results, and what else is to know is in Redis. So any front
end of the same Redis answers for any of them, and none is lost with a front end.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from cluster_serving.client.cancel import Place, clear_withdrawn, withdraw_call
from cluster_serving.frontend.api.original import instances, predictions
from cluster_serving.frontend.api.original.http import priority_of
from cluster_serving.frontend.api.requests.callback import Callbacks
from cluster_serving.frontend.api.requests.ticket import Ticket
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.errors import RequestNotFound
from cluster_serving.frontend.models.registry import ServedModel
from cluster_serving.frontend.server.disconnect import unless_disconnected
from cluster_serving.frontend.server.middleware import note
from cluster_serving.frontend.server.responses import Json, dumps, failures, read_body
from cluster_serving.protocol.connection import translated
from cluster_serving.protocol.errors import InvalidInput, RedisUnavailable, ServingError
from cluster_serving.protocol.inputs import Input
from cluster_serving.protocol.keys import NORMAL, result_key, stream_of
from cluster_serving.protocol.results import Fields, Outputs, decode_outputs
from cluster_serving.protocol.scripts import HAS_ENTRY, Call, call_all, call_async

KEPT = 3600
"""Seconds for which an id is known; results are kept for the job's `resultTtl`."""

_MOST_WAIT = 300.0
_CHECK_EVERY = 5.0
_REDIS_PAUSE = 1.0
_PRIORITY = "priority"

# A script, as the entry itself is not wanted, which may be large.


class Requests:
    """Queues requests and finds their results; the logic of this API, without HTTP."""

    def __init__(self, front: FrontEnd) -> None:
        self._front = front
        self._dispatch = front.dispatch

    async def submit(self, job: str, records: Sequence[dict[str, Input]], priority: str) -> Ticket:
        """Queue records.

        Raises:
            QueueFull: Redis takes no more.
            RedisUnavailable: It cannot be reached.
        """
        ticket = Ticket(secrets.token_hex(16), len(records), job)
        dispatcher = self._dispatch.dispatcher(job)
        db: Any = dispatcher.db
        # First, so that no result is there before its id is known.
        with translated(db):
            async with db.pipeline() as pipeline:
                pipeline.hset(ticket.key, _PRIORITY, priority)
                pipeline.expire(ticket.key, KEPT)
                await pipeline.execute()
        entries = await asyncio.gather(
            *(dispatcher.submit(job, uri, record, priority) for uri, record in zip(ticket.uris, records, strict=True)),
            return_exceptions=True,
        )
        queued = {uri: entry for uri, entry in zip(ticket.uris, entries, strict=True) if isinstance(entry, bytes)}
        if queued:
            with translated(db):
                await db.hset(ticket.key, mapping=queued)
        for entry in entries:
            if isinstance(entry, BaseException):
                await self.cancel(ticket)
                raise entry
        return ticket

    async def results(self, ticket: Ticket, wait: float = 0.0) -> list[Outputs | ServingError | None]:
        """The results, None for each that is not there yet.

        Args:
            ticket: Which request.
            wait: Seconds to wait for those.

        Raises:
            RequestNotFound: The request is unknown, or forgotten.
        """
        fields = await self._look(ticket, 0.0)
        if not all(fields):
            # One tells for all: they expire together.
            index = fields.index({})
            fields[index] = await self.result(ticket, ticket.uris[index], 0.0)
            if wait:
                fields = await self._look(ticket, wait)
        return [_decoded(found) if found else None for found in fields]

    async def result(self, ticket: Ticket, uri: str, wait: float) -> Fields:
        """The result of one of the instances, empty if it is not there yet.

        Raises:
            RequestNotFound: It will not come: the request was cancelled, or the result has expired.
        """
        dispatcher = self._dispatch.dispatcher(ticket.job)
        if found := await dispatcher.look(ticket.job, uri, wait):
            return found
        # What is waiting no more may just have been answered.
        if await self._waits(ticket, uri) or (found := await dispatcher.look(ticket.job, uri)):
            return found
        raise RequestNotFound("there is no such request, or its result is no longer kept")

    async def _look(self, ticket: Ticket, wait: float) -> list[Fields]:
        dispatcher = self._dispatch.dispatcher(ticket.job)
        return await asyncio.gather(*(dispatcher.look(ticket.job, uri, wait) for uri in ticket.uris))

    async def _waits(self, ticket: Ticket, uri: str) -> bool:
        """Whether a request is in the stream, where it stays until it is answered or cancelled."""
        db: Any = self._dispatch.dispatcher(ticket.job).db
        with translated(db):
            known = await db.hgetall(ticket.key)
            entry = known.get(uri.encode())
            if entry is None:
                return bool(known)
            return bool(await call_async(db, Call(HAS_ENTRY, [_stream(ticket, known)], [entry])))

    async def cancel(self, ticket: Ticket) -> None:
        """Take a request out of the queue and forget its results.

        Raises:
            RequestNotFound: The request is unknown.
        """
        db: Any = self._dispatch.dispatcher(ticket.job).db
        with translated(db):
            known = await db.hgetall(ticket.key)
            if not known:
                raise RequestNotFound("there is no such request, or its result is no longer kept")
            stream = _stream(ticket, known)
            known.pop(_PRIORITY.encode(), None)
            # What is being computed goes on: if its slot died meanwhile, nobody would know of it any more.
            for reply in await call_all(
                db, [withdraw_call(ticket.job, uri.decode(), Place(stream, entry)) for uri, entry in known.items()]
            ):
                if isinstance(reply, RedisError):
                    raise reply
                clear_withdrawn(reply)
            await db.unlink(ticket.key, *(result_key(ticket.job, uri) for uri in ticket.uris))


def _stream(ticket: Ticket, known: Mapping[bytes, bytes]) -> str:
    return stream_of(ticket.job, known.get(_PRIORITY.encode(), NORMAL.encode()).decode())


def _decoded(fields: dict[bytes, bytes]) -> Outputs | ServingError:
    try:
        return decode_outputs(fields)
    except ServingError as error:
        return error


def routes(front: FrontEnd) -> list[Route]:
    """The paths of this API."""
    api = _Asynchronous(front)
    return [
        Route("/v1/requests", api.submit, methods=["POST"]),
        Route("/v1/requests/{id}", api.get, methods=["GET"]),
        Route("/v1/requests/{id}", api.cancel, methods=["DELETE"]),
        Route("/v1/requests/{id}/events", api.events, methods=["GET"]),
    ]


class _Asynchronous:
    def __init__(self, front: FrontEnd) -> None:
        self._front = front
        self._requests = Requests(front)
        self._callbacks = Callbacks(front.options.callback_hosts)
        front.on_close.append(self._callbacks.close)

    async def submit(self, request: Request) -> Response:
        options = self._front.options
        body = await read_body(request, options)
        expected = await self._front.registry.described()
        content, found = await self._front.offload.to_process(
            len(body), instances.read_submission, body, options.max_instances, expected
        )
        name, callback = content.get("model", ""), content.get("callback")
        if not isinstance(name, str):
            raise InvalidInput("'model' is not a text; expected the name of a model")
        if callback is not None:
            self._callbacks.check(callback)
        model = await self._front.registry.model(name)
        note(request, "v1", model.name)
        self._front.metrics.asked("v1", model.name, len(found))
        records = []
        for record in found:
            if isinstance(record, ServingError):
                raise record
            records.append(record)
        ticket = await self._requests.submit(model.job, records, priority_of(request))
        if callback is not None:
            self._callbacks.post_later(callback, self._whole(ticket, model))
        place = f"/v1/requests/{quote(str(ticket))}"
        return Json({"id": str(ticket), "status": "pending"}, 202, {"location": place})

    async def get(self, request: Request) -> Response:
        note(request, "v1")
        wait = _seconds(request.query_params.get("wait", "0"))
        ticket = self._ticket(request)
        results = await unless_disconnected(request, self._requests.results(ticket, wait))
        return Response(await self._written(ticket, results), media_type=Json.media_type)

    async def cancel(self, request: Request) -> Response:
        note(request, "v1")
        await self._requests.cancel(self._ticket(request))
        return Response(status_code=204)

    async def events(self, request: Request) -> Response:
        note(request, "v1")
        ticket = self._ticket(request)
        await self._requests.results(ticket)
        return StreamingResponse(self._events(ticket), media_type="text/event-stream")

    async def _events(self, ticket: Ticket) -> AsyncIterator[bytes]:
        """An event `prediction` for each instance, in the order in which they are answered, and then `done`."""

        async def outcome(index: int, uri: str) -> tuple[int, Outputs | ServingError]:
            fields: Fields = {}
            while not fields:
                fields = await self._requests.result(ticket, uri, _CHECK_EVERY)
            return index, _decoded(fields)

        tasks = [asyncio.create_task(outcome(index, uri)) for index, uri in enumerate(ticket.uris)]
        try:
            for next_one in asyncio.as_completed(tasks):
                index, outputs = await next_one
                written = await self._front.offload.to_process(predictions.size([outputs]), _event, index, outputs)
                yield b"event: prediction\ndata: %b\n\n" % written
            yield b'event: done\ndata: {"id":%b}\n\n' % json.dumps(str(ticket)).encode()
        except ServingError as error:
            yield b"event: error\ndata: %b\n\n" % bytes(Json({"error": str(error), "code": error.code}).body)
        finally:
            for task in tasks:
                task.cancel()
            # Several may have failed, and each would complain that nobody looked.
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _whole(self, ticket: Ticket, model: ServedModel) -> bytes:
        results: list[Outputs | ServingError | None] = [None]
        while None in results:
            try:
                results = await self._requests.results(ticket, _MOST_WAIT)
            except RedisUnavailable:
                # The result will be there when Redis is back.
                await asyncio.sleep(_REDIS_PAUSE)
        return await self._written(ticket, results, model=model.name)

    async def _written(self, ticket: Ticket, results: Sequence[Outputs | ServingError | None], **more: str) -> bytes:
        more["id"] = str(ticket)
        there = [result for result in results if result is not None]
        if len(there) < len(results):
            return dumps({**more, "status": "pending", "answered": len(there), "instances": len(results)})
        more["status"] = "failed" if failures(there) else "done"
        return await self._front.offload.to_process(predictions.size(there), predictions.body, there, "json", "", more)

    def _ticket(self, request: Request) -> Ticket:
        return Ticket.read(request.path_params["id"], self._front.options.max_instances)


def _event(index: int, outputs: Outputs | ServingError) -> bytes:
    return dumps({"index": index, "prediction": predictions.written(outputs, "json")})


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _MOST_WAIT:
        raise InvalidInput(f"wait is {text[:32]!r}; expected seconds from 0 to {_MOST_WAIT:g}")
    return seconds
