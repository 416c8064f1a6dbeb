"""Requests in one stream entry: those of a turn of the event loop that differ in nothing but their data."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Hashable, Mapping, Sequence
from contextvars import Context
from functools import partial
from typing import Any, NamedTuple, Protocol

from cluster_serving.client import trace
from cluster_serving.frontend.caller import request_id, trace_id
from cluster_serving.protocol import columns
from cluster_serving.protocol.tensors import Encoded, Inputs, decoded

Answered = tuple[columns.Outcomes, str | None]
"""Outputs or error of a record, in a list, and the version that has answered."""

_MOST_ID_BYTES = 3000
"""Most bytes of the ids of the requests in an entry, which are in its uri (`protocol.entry.MAX_URI_BYTES`)."""

_LARGE = columns.STACKED_BYTES + 4096
"""Bytes of an encoded record that shares no entry."""

_WAITS_PER_E = 20
"""Requests share an entry, and so a deadline, if their times left differ by 5 % at most."""


class Wish(NamedTuple):
    """What requests in one entry have in common.

    Attributes:
        job: Name of the job.
        priority: Priority of the stream.
        version: Version of the model that is to answer; empty for any.
        origin: Caller, whose requests are computed apart from those of others if many fail.
    """

    job: str
    priority: str
    version: str
    origin: str


class Send(Protocol):
    """The way to a job."""

    async def __call__(self, wish: Wish, inputs: Inputs, records: int, ids: Sequence[str], timeout: float) -> Answered:
        """Send an entry; return the outcome of each record, and the version that has answered."""


class _Member(NamedTuple):
    record: Inputs
    values: Mapping[str, Any]
    id: str
    timeout: float
    answered: asyncio.Future[Answered]


class Sharing:
    """Sends requests of one record together, if they come in one turn of the event loop; used by one event loop.

    An entry costs Redis, source, window and sink the same for one record and for many. Each caller gets the outcome of
    its own record. If it goes away, the others still get theirs; the entry is withdrawn if all have gone.

    Args:
        send: Sends an entry.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._groups: dict[Hashable, list[_Member]] = {}
        self._entries: set[asyncio.Task[None]] = set()
        # The entries are of several requests, so they have the context of none.
        self._context = Context()
        self._context.run(trace.sender.set, lambda job: None)

    async def answer(self, wish: Wish, record: Inputs, timeout: float, most: int) -> Answered:
        """Return the answer to a record, which shares an entry with at most `most - 1` others."""
        own = request_id.get()
        # The span of a sampled request is that of an entry.
        small = not trace_id.get() and not (isinstance(record, Encoded) and len(record.data) > _LARGE)
        kinds = columns.kinds_of_numbers(values := decoded(record)) if small else None
        if kinds is None:
            return await self._send(wish, record, 1, [own], timeout)
        key = wish, kinds, most, round(_WAITS_PER_E * math.log(timeout))
        loop = asyncio.get_running_loop()
        member = _Member(record, values, own, timeout, loop.create_future())
        group = self._groups.setdefault(key, [])
        group.append(member)
        if len(group) == 1:
            loop.call_soon(partial(self._begin, key, wish, most), context=self._context)
        return await member.answered

    def _begin(self, key: Hashable, wish: Wish, most: int) -> None:
        members = self._groups.pop(key)
        size = max(1, min(most, _MOST_ID_BYTES // (1 + max(len(member.id) for member in members))))
        for start in range(0, len(members), size):
            entry = asyncio.create_task(self._share(wish, members[start : start + size]))
            self._entries.add(entry)
            entry.add_done_callback(self._entries.discard)

    async def _share(self, wish: Wish, members: Sequence[_Member]) -> None:
        """Send the records of callers that still wait, and give each its outcome."""
        members = [member for member in members if not member.answered.done()]
        if not members:
            return
        entry, left = asyncio.current_task(), len(members)

        def leave(answered: asyncio.Future[Answered]) -> None:
            nonlocal left
            left -= 1
            if not left and entry is not None:
                entry.cancel()

        for member in members:
            member.answered.add_done_callback(leave)
        try:
            inputs = members[0].record if left == 1 else columns.together([member.values for member in members])
            longest = max(member.timeout for member in members)
            outcomes, version = await self._send(wish, inputs, len(members), [member.id for member in members], longest)
            for member, outcome in zip(members, outcomes, strict=True):
                if not member.answered.done():
                    member.answered.set_result(([outcome], version))
        except Exception as error:
            for member in members:
                if not member.answered.done():
                    member.answered.set_exception(error)
