"""Requests that are queued now and whose results are fetched later, over HTTP: `/v1/requests`."""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from functools import partial
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cluster_serving.client.answers.pieces import PieceOrRestart, Restarted
from cluster_serving.frontend.api.bodies import read_body
from cluster_serving.frontend.api.idempotency import IdempotencyKeys
from cluster_serving.frontend.api.json_text import reading_cost, writing_cost
from cluster_serving.frontend.api.original import predictions
from cluster_serving.frontend.api.requests import fitting
from cluster_serving.frontend.api.requests.callback import Receivers
from cluster_serving.frontend.api.requests.delivery import Delivery
from cluster_serving.frontend.api.requests.store import KEPT, RequestStore, StoredResult, Ticket
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.errors import without_errors
from cluster_serving.frontend.models.dispatch import joined
from cluster_serving.frontend.server.http import events
from cluster_serving.frontend.server.http.call import HttpCall, call_of
from cluster_serving.frontend.server.http.merge import merged
from cluster_serving.frontend.server.http.query import QueryRoute
from cluster_serving.frontend.server.http.responses import Json, Written, dumps, worst_error
from cluster_serving.protocol.columns import Columns
from cluster_serving.protocol.errors import InvalidInput, RedisUnavailable, ResultTimeout, ServingError
from cluster_serving.protocol.pieces import BEGINNING, is_id
from cluster_serving.protocol.tensors import Inputs

_MOST_WAIT = 300.0
_CHECK_EVERY = 5.0
_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)


def routes(front: FrontEnd) -> list[Route]:
    """Return the routes of this API."""
    api = _RequestRoutes(front)
    return [
        Route("/v1/requests", api.submit, methods=["POST"]),
        QueryRoute("/v1/requests/{id}", api.get, methods=["GET"], query=("wait",)),
        Route("/v1/requests/{id}", api.cancel, methods=["DELETE"]),
        Route("/v1/requests/{id}/events", api.events, methods=["GET"]),
    ]


class _RequestRoutes:
    def __init__(self, front: FrontEnd) -> None:
        self._front = front
        self._store = RequestStore(front.dispatch)
        hosts, secret = front.options.callback_hosts, front.options.callback_secret.get_secret_value()
        self._receivers = Receivers(hosts, secret)
        self._delivery = Delivery(front, self._store, self._receivers, self._written)
        self._keys = IdempotencyKeys(front, "/v1/requests", KEPT)
        if hosts:
            front.on_start.append(self._delivery.start)
            front.on_close.append(self._delivery.close)

    async def submit(self, request: Request) -> Response:
        call = call_of(request)
        call.protocol = "v1"
        body = await read_body(call, self._front.options)
        made = await self._keys.once(call, body, partial(self._queue, call, body), self._undo)
        location = f"/v1/requests/{quote(made)}"
        if call_of(request).choices(b"accept").get("text/event-stream"):
            ticket, in_pieces = await self._store.check(Ticket.read(made), call.client)
            if in_pieces:
                after = [BEGINNING] * ticket.count
                return events.stream(self._pieces(call, ticket, after, first=True), {"location": location})
        return Json({"id": made, "status": "pending"}, 202, {"location": location})

    async def _queue(self, call: HttpCall, body: bytes) -> str:
        """Queue the request in a body, and return its id."""
        options, registry = self._front.options, self._front.registry
        asked = await self._front.offload.run(
            partial(fitting.read, body, options.most_records, await registry.described()),
            holding_gil=reading_cost(body),
        )
        callback, records = asked.callback, asked.records
        if callback is not None:
            self._receivers.check(callback)
            if asked.stream:
                raise InvalidInput("a request has 'callback' or 'stream', not both: a callback gets the whole answer")
        model = await registry.model(asked.model, asked.version)
        call.model = model.name
        self._front.check(model, can_wait=True)
        self._front.metrics.asked("v1", model.name, len(records))
        valid: Sequence[Inputs] = records if isinstance(records, Columns) else without_errors(records)
        ticket = await self._store.submit(
            model.job, valid, call.priority, call.client, model.asked, asked.stream, call.timeout, model.together
        )
        if callback is not None:
            try:
                await self._delivery.add(ticket, callback, model.name)
            except ServingError:
                # The client gets no id.
                with suppress(ServingError):
                    await self._store.cancel(ticket)
                raise
        return str(ticket)

    async def _undo(self, made: str) -> None:
        ticket = await self._store.known(made)
        await self._delivery.remove(ticket)
        await self._store.cancel(ticket)

    async def get(self, request: Request) -> Response:
        call = call_of(request)
        call.protocol = "v1"
        wait = _seconds(request.query_params.get("wait", "0"))
        ticket, in_pieces = await self._ticket(request)
        if in_pieces:
            raise InvalidInput("the answer of this request is in pieces ('stream'); read them at its path /events")
        results = await call.unless_gone(self._store.results(ticket, wait))
        call.version = joined(result.version for result in results if result is not None)
        return Written(await self._written(ticket, results))

    async def cancel(self, request: Request) -> Response:
        call_of(request).protocol = "v1"
        ticket, _ = await self._ticket(request)
        await self._delivery.remove(ticket)
        await self._store.cancel(ticket)
        return Response(status_code=204)

    async def events(self, request: Request) -> Response:
        call = call_of(request)
        call.protocol = "v1"
        ticket, in_pieces = await self._ticket(request)
        if in_pieces:
            after = _places(request.headers.get("last-event-id"), ticket.count)
            return events.stream(self._pieces(call, ticket, after))
        # An unknown request is refused with a status, before the stream begins.
        await self._store.results(ticket)
        return events.stream(self._events(ticket))

    async def _pieces(
        self, call: HttpCall, ticket: Ticket, after: list[str], first: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """Yield an event `piece` for each piece, `restarted` for each new beginning, and then the event `done`.

        An instance that fails has an event `error`, and the others go on.

        The stream goes on after the pieces of these ids, one for each instance; the id of an event lists the latest
        pieces of all instances. The end of the connection does not stop the request.
        """
        if first:
            yield events.event(dumps({"id": str(ticket)}), "request")
        try:
            streams = [self._pieces_or_error(ticket, index, after[index]) for index in range(ticket.count)]
            async with aclosing(merged(streams)) as pieces:
                async for index, (piece_id, piece) in pieces:
                    if isinstance(piece, ServingError):
                        failed = {"index": index, "error": piece.message, "code": piece.code}
                        yield events.event(dumps(failed), "error", ",".join(after))
                        continue
                    after[index] = piece_id
                    if isinstance(piece, Restarted):
                        yield events.event(dumps({"index": index}), "restarted", ",".join(after))
                        continue
                    call.version = piece.version or ""
                    content = {"index": index, "piece": predictions.written(piece.outputs, "json")["value"]}
                    yield events.event(dumps(content), "piece", ",".join(after))
            yield events.event(dumps({"id": str(ticket)}), "done")
        except ServingError as error:
            yield events.event(dumps({"error": error.message, "code": error.code}), "error")

    async def _pieces_or_error(
        self, ticket: Ticket, index: int, after: str
    ) -> AsyncGenerator[tuple[str, PieceOrRestart | ServingError], None]:
        async with aclosing(self._store.pieces(ticket, index, after, _MOST_WAIT)) as pieces:
            try:
                async for piece in pieces:
                    yield piece
            except (RedisUnavailable, ResultTimeout):
                # It has not failed: the client can go on later.
                raise
            except ServingError as error:
                yield "", error

    async def _events(self, ticket: Ticket) -> AsyncGenerator[bytes, None]:
        """Yield an event `prediction` for each instance, in the order of the answers, and then the event `done`."""

        async def results(indices: Sequence[int]) -> list[tuple[int, StoredResult]]:
            return [*zip(indices, await self._store.result(ticket, indices, _CHECK_EVERY), strict=True)]

        tasks = [asyncio.create_task(results(indices)) for indices in ticket.entries]
        try:
            for task in asyncio.as_completed(tasks):
                for index, result in await task:
                    written = await self._front.offload.run(
                        partial(_event, index, result), holding_gil=writing_cost([result.outcome])
                    )
                    yield events.event(written, "prediction")
            yield events.event(dumps({"id": str(ticket)}), "done")
        except ServingError as error:
            yield events.event(dumps({"error": error.message, "code": error.code}), "error")
        finally:
            for pending in tasks:
                pending.cancel()
            # asyncio logs every exception of a task that nothing has retrieved, and several tasks may have failed.
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _written(self, ticket: Ticket, results: Sequence[StoredResult | None], model: str = "") -> bytes:
        """Return the body of an answer; that of a callback has the name of the model."""
        fields = {"model": model, "id": str(ticket)} if model else {"id": str(ticket)}
        present = [result.outcome for result in results if result is not None]
        if len(present) < len(results):
            counts = {"answered": len(present), "instances": len(results)}
            position = await self._store.position(ticket, results.index(None))
            return dumps({**fields, "status": "pending", **counts, "position": position})
        fields["status"] = "done" if worst_error(present) is None else "failed"
        if version := joined(result.version for result in results if result is not None):
            fields["version"] = version
        work = partial(predictions.body, present, "json", "", fields)
        return await self._front.offload.run(work, holding_gil=writing_cost(present))

    async def _ticket(self, request: Request) -> tuple[Ticket, bool]:
        """Return the ticket of the id in the path, if it belongs to the caller, and if its answers are in pieces."""
        ticket = Ticket.read(request.path_params["id"], self._front.options.most_records)
        return await self._store.check(ticket, call_of(request).client)


def _places(text: str | None, count: int) -> list[str]:
    """Return the ids of the latest pieces of all instances, from the id of an event; None for the beginning."""
    if text is None:
        return [BEGINNING] * count
    places = text.split(",")
    if len(places) != count or not all(map(is_id, places)):
        raise InvalidInput(f"Last-Event-ID is {text[:64]!r}; expected the id of an event of this request")
    return places


def _event(index: int, result: StoredResult) -> bytes:
    fields = {"version": result.version} if result.version else {}
    return dumps({"index": index, **fields, "prediction": predictions.written(result.outcome, "json")})


def _seconds(text: str) -> float:
    seconds = float(text) if _NUMBER.fullmatch(text) else -1.0
    if not 0 <= seconds <= _MOST_WAIT:
        raise InvalidInput(f"wait is {text[:32]!r}; expected seconds from 0 to {_MOST_WAIT:g}")
    return seconds
