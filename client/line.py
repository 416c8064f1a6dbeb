"""A connection to Redis over which one task makes trips."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Sequence
from functools import partial
from typing import Any

import redis.asyncio
from redis.exceptions import ConnectionError, ResponseError, TimeoutError

from cluster_serving.protocol.scripts import Call, with_texts


class Line:
    """Makes calls, those of a trip together, over a connection of its own; used by one task at a time.

    Half as much work per trip as a pipeline of the pool, which takes a connection, looks whether it still lives, and
    gives it back.

    Args:
        client: Whose Redis it is.
    """

    def __init__(self, client: redis.asyncio.Redis) -> None:
        # redis-py types what it reads as if it might not be awaitable.
        self._connection: Any = client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        # One for the whole trip: redis-py makes a task of each command to limit its time.
        self._timeout: float | None = self._connection.socket_timeout
        self._connection.socket_timeout = None

    async def call_all(self, calls: Sequence[Call]) -> list[Any]:
        """Make independent calls in one trip; errors that concern one of them are in its place.

        Raises:
            redis.RedisError: Redis cannot be used; whether the calls were made is not known.
        """
        return await with_texts(self._ask, calls)

    async def close(self) -> None:
        """Close the connection; a later call opens it again."""
        await self._connection.disconnect()

    async def _ask(self, calls: Sequence[Call], by_text: bool) -> list[Any]:
        trip = partial(self._trip, [call.command(by_text) for call in calls])
        replies: list[Any] = await self._connection.retry.call_with_retry(trip, self._failed)
        return replies

    async def _trip(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        connection = self._connection
        try:
            async with asyncio.timeout(self._timeout):
                await connection.connect()
                await connection.send_packed_command(connection.pack_commands(commands), check_health=False)
                return [await self._reply() for _ in commands]
        except BaseException as error:
            # Replies that were not read would be taken for those to the next trip.
            await connection.disconnect(nowait=True)
            if isinstance(error, builtins.TimeoutError):
                raise TimeoutError(f"Redis did not answer within {self._timeout:g} s") from None
            raise

    async def _reply(self) -> Any:
        try:
            return await self._connection.read_response()
        except ResponseError as error:
            return error

    async def _failed(self, error: Exception) -> None:
        # A Redis that hangs is not asked again, see `protocol.connection`.
        if not isinstance(error, ConnectionError):
            raise error
