"""A connection of one task, which sends several calls in each round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import redis.asyncio
from redis.exceptions import ConnectionError, ResponseError, TimeoutError

from cluster_serving.protocol.compat import timeout as time_limit
from cluster_serving.protocol.scripts import Call, with_texts


class DedicatedAsyncConnection:
    """A dedicated connection for calls of scripts; used by one task at a time.

    A round trip takes half as much work as a pipeline of the pool, which takes a connection, checks it, and returns it.
    """

    def __init__(self, client: redis.asyncio.Redis) -> None:
        # redis-py types replies as if they might not be awaitable.
        self._connection: Any = client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        # One timeout for the whole trip, not one for each reply.
        self._timeout: float | None = self._connection.socket_timeout
        self._connection.socket_timeout = None

    async def call_all(self, calls: Sequence[Call]) -> list[Any]:
        """Make independent calls in one round trip. An error of one call is in the place of its reply.

        Raises:
            redis.RedisError: If Redis cannot be used. The calls may have been made or not.
        """
        return await with_texts(self._send, calls)

    async def close(self) -> None:
        """Close the connection; a later call opens it again."""
        await self._connection.disconnect()

    async def _send(self, calls: Sequence[Call], by_text: bool) -> list[Any]:
        trip = partial(self._trip, [call.command(by_text) for call in calls])
        replies: list[Any] = await self._connection.retry.call_with_retry(trip, self._failed)
        return replies

    async def _trip(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        connection = self._connection
        try:
            async with time_limit(self._timeout):
                await connection.connect()
                await connection.check_health()
                await connection.send_packed_command(connection.pack_commands(commands), check_health=False)
                return [await self._reply() for _ in commands]
        except BaseException as error:
            # Unread replies would be taken for replies to the next trip.
            await connection.disconnect(nowait=True)
            if isinstance(error, asyncio.TimeoutError):
                raise TimeoutError(f"Redis did not answer within {self._timeout:g} s") from None
            raise

    async def _reply(self) -> Any:
        try:
            return await self._connection.read_response()
        except ResponseError as error:
            return error

    async def _failed(self, error: Exception) -> None:
        # A command that timed out is not repeated, see `protocol.redis.connection`.
        if not isinstance(error, ConnectionError):
            raise error
