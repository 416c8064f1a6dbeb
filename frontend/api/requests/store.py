"""Requests whose results are fetched later, apart from HTTP.

A front end remembers no such request: an id names the job and the results, and Redis has the rest. So any front
end of the same Redis answers for any request, and no request is lost with a front end.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from redis.exceptions import RedisError

from cluster_serving.client.answers.pieces import PieceIteration, PieceOrRestart
from cluster_serving.client.cancel import discard_file, withdraw_call
from cluster_serving.client.enqueue import RequestOptions
from cluster_serving.client.positions import Position
from cluster_serving.frontend.errors import RequestNotFound
from cluster_serving.frontend.models.dispatch import Dispatch
from cluster_serving.frontend.models.turns import in_turns
from cluster_serving.protocol import columns
from cluster_serving.protocol.errors import RequestCancelled, ServingError
from cluster_serving.protocol.keys import NORMAL, PRIORITIES, JobKeys
from cluster_serving.protocol.results import Fields, Outputs, encode_error, version_of
from cluster_serving.protocol.scripts import COUNT_BEFORE, HAS_ENTRY, Call, call_all, call_async
from cluster_serving.protocol.tensors import Inputs

KEPT = 3600
"""Seconds for which an id is known; results are kept for the `resultTtl` of the job."""

_MOST_COUNTED, _MOST_PAGES = 1000, 20

_PRIORITY, _OWNER, _IN_PIECES, _ENTRIES, _COUNT = _FIELDS = "priority", "owner", "pieces", "entries", "count"
_ID = re.compile(r"([0-9a-f]{32})-([1-9][0-9]{0,8})-(\{[A-Za-z0-9_.-]+\}[A-Za-z0-9_.-]*|[A-Za-z0-9_.-]+)")
_GONE = "there is no such request, or its result is no longer kept"


@dataclass(frozen=True, slots=True)
class Ticket:
    """The parts of an id.

    Attributes:
        secret: Random part, which nobody can guess.
        count: Number of instances.
        job: Name of the job.
        entries: Indices of the instances in each stream entry; empty if they are not known yet.
    """

    secret: str
    count: int
    job: str
    entries: Sequence[Sequence[int]] = ()

    def __str__(self) -> str:
        return f"{self.secret}-{self.count}-{self.job}"

    @property
    def uris(self) -> list[str]:
        """Names of the requests to the job, one for each entry."""
        return [self.uri(indices[0]) for indices in self.entries]

    def uri(self, index: int) -> str:
        """Return the name of the request that begins with an instance."""
        return f"{self.secret}-{index}"

    @property
    def key(self) -> str:
        """Redis hash of `_FIELDS`, and of the stream entries by uri; it exists while the id is known."""
        return JobKeys(self.job).ticket(self.secret)

    @classmethod
    def read(cls, text: str, most: int = sys.maxsize) -> Ticket:
        """Read an id of a request with at most `most` instances; any other text raises `RequestNotFound`."""
        match = _ID.fullmatch(text)
        if match is None or int(match[2]) > most:
            raise RequestNotFound("there is no such request")
        return cls(match[1], int(match[2]), match[3])


class StoredResult(NamedTuple):
    """Outputs or error of an instance, and the version of the model that gave it; None if it is unknown."""

    outcome: Outputs | ServingError
    version: str | None


class RequestStore:
    """Queues requests, finds their results and cancels them.

    A request that is unknown or cancelled, or whose results are no longer kept, raises `RequestNotFound`.
    """

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch

    async def submit(
        self,
        job: str,
        records: Sequence[Inputs],
        priority: str,
        owner: str,
        version: str = "",
        in_pieces: bool = False,
        deadline: float | None = None,
        together: int = 1,
    ) -> Ticket:
        """Queue the records of one request of an owner, who may be nobody (empty): all of them, or none.

        A `version` of the model that is not empty must answer them. The answers are results, or `pieces`. The deadline
        is that of `RequestOptions`. Up to `together` records share an entry, unless they are answered in pieces.
        """
        # Refuses an unknown priority before anything is written.
        deadline_ms = RequestOptions(deadline=deadline, priority=priority).deadline_ms
        chunks = await self._dispatch.chunks(records, 1 if in_pieces else together)
        ticket = Ticket(secrets.token_hex(16), len(records), job, [indices for indices, _ in chunks])
        dispatcher = self._dispatch.dispatcher(job)
        db: Any = dispatcher.db
        # Written first, so that no result exists before its id is known.
        with dispatcher.using_redis():
            async with db.pipeline() as pipeline:
                fields = {_PRIORITY: priority, _OWNER: owner, _IN_PIECES: int(in_pieces), _COUNT: ticket.count}
                if len(chunks) < ticket.count:
                    fields[_ENTRIES] = json.dumps([*map(list, ticket.entries)])
                pipeline.hset(ticket.key, mapping=fields)
                pipeline.expire(ticket.key, KEPT)
                await pipeline.execute()

        async def submit(uri: str, inputs: Inputs, count: int) -> bytes | Exception:
            shared = count if count > 1 else 0
            try:
                return await dispatcher.submit(job, uri, inputs, priority, version, in_pieces, deadline_ms, shared)
            except Exception as error:
                return error

        works = (submit(ticket.uri(indices[0]), inputs, len(indices)) for indices, inputs in chunks)
        entries = await in_turns(works)
        queued = {uri: entry for uri, entry in zip(ticket.uris, entries, strict=True) if isinstance(entry, bytes)}
        if queued:
            with dispatcher.using_redis():
                await db.hset(ticket.key, mapping=queued)
        for entry in entries:
            if isinstance(entry, Exception):
                await self.cancel(ticket)
                raise entry
        return ticket

    async def check(self, ticket: Ticket, owner: str) -> tuple[Ticket, bool]:
        """Check that a request belongs to its caller; return it with its entries, and if its answers are in pieces.

        To another caller it is unknown.
        """
        known, found, in_pieces = await self._read(ticket)
        if found != owner.encode():
            raise RequestNotFound(_GONE)
        return known, in_pieces

    async def known(self, text: str) -> Ticket:
        """Return the ticket of an id, whoever its owner is, with its entries."""
        return (await self._read(Ticket.read(text)))[0]

    async def _read(self, ticket: Ticket) -> tuple[Ticket, bytes, bool]:
        dispatcher = self._dispatch.dispatcher(ticket.job)
        db: Any = dispatcher.db
        with dispatcher.using_redis():
            owner, in_pieces, shared, count = await db.hmget(ticket.key, _OWNER, _IN_PIECES, _ENTRIES, _COUNT)
        # A front end of an earlier version has written no count.
        if owner is None or int(count or ticket.count) != ticket.count:
            raise RequestNotFound(_GONE)
        entries = json.loads(shared) if shared else [[index] for index in range(ticket.count)]
        return replace(ticket, entries=entries), owner, in_pieces == b"1"

    async def keep(self, ticket: Ticket, seconds: int) -> None:
        """Keep an id for some seconds from now on."""
        dispatcher = self._dispatch.dispatcher(ticket.job)
        with dispatcher.using_redis():
            await dispatcher.db.expire(ticket.key, seconds)

    async def position(self, ticket: Ticket, index: int) -> int:
        """Return the number of requests ahead of an instance: those of higher priorities, and those before in its own.

        Those in its own are counted up to the first `_MOST_COUNTED` or so.
        """
        dispatcher, keys = self._dispatch.dispatcher(ticket.job), JobKeys(ticket.job)
        db: Any = dispatcher.db
        (uri,) = (ticket.uri(indices[0]) for indices in ticket.entries if index in indices)
        with dispatcher.using_redis():
            priority, entry = await db.hmget(ticket.key, _PRIORITY, uri)
            if priority is None or entry is None:
                return 0
            higher = PRIORITIES[: PRIORITIES.index(priority.decode())]
            ahead = sum([await db.xlen(keys.stream(name)) for name in higher])
            first, counted = b"-", 0
            for _ in range(_MOST_PAGES):
                first, number = await call_async(
                    db, Call(COUNT_BEFORE, [keys.stream(priority.decode())], [first, entry])
                )
                counted += number
                if not first or counted >= _MOST_COUNTED:
                    break
        return int(ahead + counted)

    async def pieces(
        self, ticket: Ticket, index: int, after: str, timeout: float
    ) -> AsyncGenerator[tuple[str, PieceOrRestart], None]:
        """Yield the pieces of the answer to an instance after the one of an id, each with its id."""
        dispatcher = self._dispatch.dispatcher(ticket.job)
        answer = PieceIteration(ticket.job, ticket.uri(index), after)
        db: Any = dispatcher.db
        with dispatcher.using_redis():
            priority, entry = await db.hmget(ticket.key, _PRIORITY, answer.uri)
        answer.position = Position(_stream(ticket, priority), entry or b"")
        async with aclosing(dispatcher.pieces(answer, timeout, keep=True)) as pieces:
            async for piece in pieces:
                yield answer.last_id, piece

    async def results(self, ticket: Ticket, wait: float = 0.0) -> list[StoredResult | None]:
        """Return the result of each instance, None for each that has no result within `wait` seconds."""
        dispatcher = self._dispatch.dispatcher(ticket.job)
        uris = ticket.uris
        found = await dispatcher.look_at_all(ticket.job, uris)
        if not all(found):
            # The results of a request expire together, so that one missing result tells for all.
            index = found.index({})
            found[index] = await self._result(ticket, uris[index], 0.0)
            if wait:
                missing = [index for index, fields in enumerate(found) if not fields]
                looks = (dispatcher.look(ticket.job, uris[index], wait) for index in missing)
                for index, fields in zip(missing, await in_turns(looks), strict=True):
                    found[index] = fields
        results: list[StoredResult | None] = [None] * ticket.count
        for indices, fields in zip(ticket.entries, found, strict=True):
            for index, result in zip(indices, _decoded(fields, len(indices)) if fields else (), strict=False):
                results[index] = result
        return results

    async def result(self, ticket: Ticket, indices: Sequence[int], wait: float) -> list[StoredResult]:
        """Wait for the results of an entry. Check every `wait` seconds that they can still come."""
        while True:
            if fields := await self._result(ticket, ticket.uri(indices[0]), wait):
                return _decoded(fields, len(indices))

    async def cancel(self, ticket: Ticket) -> None:
        """Take a request out of the queue and delete its results."""
        dispatcher = self._dispatch.dispatcher(ticket.job)
        db: Any = dispatcher.db
        with dispatcher.using_redis():
            entries = await db.hgetall(ticket.key)
            if not entries:
                raise RequestNotFound(_GONE)
            stream = _stream(ticket, entries.get(_PRIORITY.encode()))
            # Those who read pieces are told.
            in_pieces = entries.get(_IN_PIECES.encode()) == b"1"
            told = encode_error(RequestCancelled("the request was cancelled")) if in_pieces else None
            for field in _FIELDS:
                entries.pop(field.encode(), None)
            # A request that is being computed stays pending, unless it makes pieces: if its slot dies, another slot has
            # to take it over.
            for reply in await call_all(
                db,
                [
                    withdraw_call(ticket.job, uri.decode(), Position(stream, entry), told)
                    for uri, entry in entries.items()
                ],
            ):
                if isinstance(reply, RedisError):
                    raise reply
                discard_file(reply)
            await db.unlink(ticket.key, *map(JobKeys(ticket.job).native_result, ticket.uris))

    async def _result(self, ticket: Ticket, uri: str, wait: float) -> Fields:
        """Return the result of an entry, empty if there is none yet; raise `RequestNotFound` if none will come."""
        dispatcher = self._dispatch.dispatcher(ticket.job)
        if fields := await dispatcher.look(ticket.job, uri, wait):
            return fields
        # A request that is no longer queued may have been answered since the look.
        if await self._is_queued(ticket, uri) or (fields := await dispatcher.look(ticket.job, uri)):
            return fields
        raise RequestNotFound(_GONE)

    async def _is_queued(self, ticket: Ticket, uri: str) -> bool:
        """Return True if an entry is in the stream: neither answered nor cancelled."""
        dispatcher = self._dispatch.dispatcher(ticket.job)
        db: Any = dispatcher.db
        with dispatcher.using_redis():
            priority, entry = await db.hmget(ticket.key, _PRIORITY, uri)
            if entry is None:
                return priority is not None
            return bool(await call_async(db, Call(HAS_ENTRY, [_stream(ticket, priority)], [entry])))


def _stream(ticket: Ticket, priority: bytes | None) -> str:
    return JobKeys(ticket.job).stream((priority or NORMAL.encode()).decode())


def _decoded(fields: Fields, count: int) -> list[StoredResult]:
    version = version_of(fields)
    return [StoredResult(outcome, version) for outcome in columns.outcomes(fields, count)]
