"""Answers in pieces: iterators over the pieces of one answer."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, Union

from redis.exceptions import RedisError

from cluster_serving.client.answers.dropped import DROPPED
from cluster_serving.client.cancel import cancel, discard_file, withdraw_call
from cluster_serving.client.dispatching.subscription import AsyncSubscription, wait_for
from cluster_serving.client.fetch import request_lost, result_timeout, result_timeout_async
from cluster_serving.client.positions import Position, RecentEntries
from cluster_serving.client.result import Result, read_result
from cluster_serving.client.subscription import Subscription
from cluster_serving.protocol import token_counts
from cluster_serving.protocol.errors import InvalidInput, RedisUnavailable, ServingError
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.pieces import BEGINNING, Piece, is_id, read_call, read_reply
from cluster_serving.protocol.results import Fields
from cluster_serving.protocol.scripts import HAS_ENTRY, Call, Procedure, fetch_call, run, run_async
from cluster_serving.protocol.token_counts import TokenCounts

if TYPE_CHECKING:
    import redis
    import redis.asyncio
    from typing_extensions import Self

PIECE_TIMEOUT = 30.0
"""Seconds for which an iterator waits for the next piece, unless it is told."""


class Restarted:
    """In the place of a piece: the request begins anew, and all pieces before it are void.

    The process that computed the request has ended, or the request was computed again without others of its batch.
    """

    def __getitem__(self, name: str) -> NoReturn:
        raise TypeError(
            "this is client.Restarted and not a piece: the answer starts again. Drop the pieces so far: "
            "if isinstance(piece, Restarted)"
        )

    def __repr__(self) -> str:
        return "Restarted()"


PieceOrRestart = Union[Result, Restarted]


class PieceIteration:
    """State of an iterator over pieces.

    Attributes:
        uri: Uri of the request.
        last_id: Id of the latest piece, from which `resume` of a queue goes on.
        position: Position of the request, if it is known.
        ended: True once the last piece was read.
        closing: True once the iterator is closed, as it is not where it is only dropped.
        tokens: Numbers of tokens that came with the end, if they were wanted (`protocol.token_counts`).
    """

    def __init__(self, job: str, uri: str, after: str = BEGINNING) -> None:
        if not is_id(after):
            raise InvalidInput(f"after is {str(after)[:32]!r}; expected the id of a piece, such as '1-5'")
        self.job = job
        self.uri = uri
        self.last_id = after
        self.position: Position | None = None
        self.ended = False
        self.closing = False
        self.tokens: TokenCounts = {}

    def read(self) -> Procedure[list[Piece]]:
        """Return the pieces after `last_id`; none while there are none.

        Raises:
            RequestLost: If the position is known, and there is neither request nor piece.
        """
        call, position = read_call(self.job, self.uri, self.last_id), self.position
        pieces = [*read_reply((yield call))]
        if pieces or position is None or (yield Call(HAS_ENTRY, [position.stream], [position.entry_id])):
            return pieces
        # The end may have come between the two commands.
        pieces = [*read_reply((yield call))]
        if not pieces:
            raise request_lost(self.job)
        return pieces

    def pieces(
        self,
        db: redis.Redis,
        subscription: Subscription,
        timeout: float,
        using: Callable[[], AbstractContextManager[None]],
        recent: RecentEntries,
    ) -> Iterator[PieceOrRestart | None]:
        """Yield None, and then the pieces; `subscription` is to their channel. See `pieces_of` for the arguments."""
        channel, process = JobKeys(self.job).pieces(self.uri), os.getpid()
        DROPPED.prepare()

        def read(_: Fields) -> list[Piece] | None:
            return run(db, self.read()) or None

        def leave() -> None:
            run(db, self.leave())
            recent.forget(self.uri)

        def unsubscribe() -> None:
            with suppress(RedisError):
                subscription.unsubscribe(channel)

        def end() -> None:
            leave()
            unsubscribe()

        try:
            yield None
            while not self.ended:
                with using():
                    pieces = read({}) or subscription.wait(channel, self.uri, read, timeout)
                if pieces is None:
                    raise result_timeout(db, self.job, timeout, self.uri)
                yield from self.take(pieces)
        except GeneratorExit:
            if self.closing:
                end()
            elif os.getpid() == process and not sys.is_finalizing():
                # Dropped. A process that is about to be gone can send nothing, and a child leaves its parent's request.
                subscription.drop(channel)
                DROPPED.add(leave)
        except RedisUnavailable:
            # `resume` can go on.
            recent.forget(self.uri)
            unsubscribe()
            raise
        except BaseException:
            end()
            raise
        else:
            end()

    def leave(self) -> Procedure[None]:
        """Stop the request, unless its answer has ended, and delete the pieces, which otherwise expire."""
        with suppress(RedisError):
            if not self.ended and self.position is not None:
                discard_file((yield withdraw_call(self.job, self.uri, self.position)))
            elif not self.ended:
                yield from cancel(self.job, self.uri, None)
            yield fetch_call([], [JobKeys(self.job).pieces(self.uri)])

    def take(self, pieces: list[Piece]) -> Iterator[PieceOrRestart]:
        """Yield what pieces say, and raise the error of a request that failed."""
        for piece in pieces:
            self.last_id = piece.id
            self.ended = piece.ends
            self.tokens = token_counts.read(piece.fields)
            if piece.restarted:
                yield Restarted()
            elif not piece.ends or b"value" in piece.fields:
                yield read_result(piece.fields)


class _Started:
    """Base of both iterators: the request, and the place in its answer."""

    def __init__(self, answer: PieceIteration, pieces: object) -> None:
        self.uri = answer.uri
        self._answer = answer
        self._pieces: Any = pieces

    @property
    def last_id(self) -> str:
        """Id of the latest piece, from which `resume` goes on."""
        return self._answer.last_id


class Pieces(_Started, Iterator[PieceOrRestart]):
    """Pieces of an answer, in the order in which the model makes them.

    The request is stopped when the iterator is closed, or dropped, before its end; not if the process dies.

    Attributes:
        uri: Uri of the request.
    """

    def __next__(self) -> PieceOrRestart:
        piece: PieceOrRestart = next(self._pieces)
        return piece

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the request at its next piece, unless it has ended."""
        self._answer.closing = True
        self._pieces.close()


class AsyncPieces(_Started, AsyncIterator[PieceOrRestart]):
    """The asyncio variant of `Pieces`; `async with` stops the request at once where the block is left."""

    async def __anext__(self) -> PieceOrRestart:
        piece: PieceOrRestart = await self._pieces.__anext__()
        return piece

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the request at its next piece, unless it has ended."""
        with suppress(ServingError):
            await self._pieces.aclose()


async def pieces_of(
    db: redis.asyncio.Redis,
    subscription: AsyncSubscription,
    answer: PieceIteration,
    timeout: float,
    using: Callable[[], AbstractContextManager[None]],
    begin: Callable[[], Awaitable[None]] | None = None,
    keep: bool = False,
) -> AsyncGenerator[PieceOrRestart, None]:
    """Yield the pieces of an answer; stop the request if the iteration ends before.

    Args:
        db: Client of the job's Redis.
        subscription: Subscription of the same Redis.
        answer: State of the iteration.
        timeout: Seconds to wait for each piece.
        using: Makes the context in which commands are sent, which translates errors of Redis.
        begin: Queues the request.
        keep: True to leave request and pieces as they are, for others who read them.
    """
    async with subscription.announcements(JobKeys(answer.job).pieces(answer.uri)) as event:
        if begin is not None:
            try:
                with using():
                    await begin()
            except asyncio.CancelledError:
                # It may be queued. A request that was refused is not, and another one may have its uri.
                if not keep:
                    await run_async(db, answer.leave())
                raise
        try:
            while not answer.ended:
                with using():
                    pieces = await wait_for(event, lambda: run_async(db, answer.read()), timeout)
                if not pieces:
                    raise await result_timeout_async(db, answer.job, timeout, answer.uri)
                for piece in answer.take(pieces):
                    yield piece
        except RedisUnavailable:
            # `resume` can go on.
            raise
        except BaseException:
            if not keep:
                await run_async(db, answer.leave())
            raise
        if not keep:
            await run_async(db, answer.leave())
