"""An exchange that also takes requests whose results are asked for later, by any process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import redis.asyncio

from cluster_serving.client.dispatcher import Dispatcher
from cluster_serving.client.pending import Pending
from cluster_serving.client.request_options import RequestOptions
from cluster_serving.protocol.connection import translated
from cluster_serving.protocol.inputs import Input
from cluster_serving.protocol.keys import NORMAL, SUBMITTED_CHANNEL, result_key
from cluster_serving.protocol.results import Fields


class DeferredExchange(Dispatcher):
    """See `Exchange`, whose arguments it takes."""

    def __init__(self, db: redis.asyncio.Redis, **options: Any) -> None:
        # Of the requests that were submitted: every exchange hears of them.
        super().__init__(db, channels=[SUBMITTED_CHANNEL], **options)

    async def submit(self, job: str, uri: str, inputs: Mapping[str, Input], priority: str = NORMAL) -> bytes:
        """Queue a request whose result any process may ask for, with `look`.

        Args:
            job: `jobName`.
            uri: Its name.
            inputs: See `client.convert.to_inputs`.
            priority: One of `protocol.keys.PRIORITIES`.

        Returns:
            The id of its entry in the stream.

        Raises:
            InvalidInput: The inputs cannot be sent.
            QueueFull: Redis takes no more requests.
            RedisUnavailable: Redis cannot be reached.
        """
        RequestOptions(priority=priority)
        pending = Pending(
            job, result_key(job, uri), {}, asyncio.get_running_loop().create_future(), priority, kept=True
        )
        await self._compose(pending, inputs, SUBMITTED_CHANNEL)
        self._queue(uri.encode(), pending)
        await pending.result
        return pending.entry_id or b""

    async def look(self, job: str, uri: str, wait: float = 0.0) -> Fields:
        """Look for the result of a submitted request, which stays in Redis.

        Args:
            job: `jobName`.
            uri: Name of the request.
            wait: Seconds to wait for it.

        Returns:
            The result hash; empty if it is not there.

        Raises:
            RedisUnavailable: Redis cannot be reached.
        """
        key, name = result_key(job, uri), uri.encode()
        if not wait:
            with translated(self.db):
                found: Fields = await self.db.hgetall(key)  # type: ignore[misc]
                return found
        await self._listener.subscribe()
        pending = self._pending.get(name)
        if pending is None:
            pending = Pending(job, key, {}, asyncio.get_running_loop().create_future(), kept=True)
            self._pending[name] = pending
            # It may be there already.
            self._look({name: None})
        pending.waiters += 1
        try:
            async with asyncio.timeout(wait):
                return await asyncio.shield(pending.result)
        except TimeoutError:
            return {}
        finally:
            pending.waiters -= 1
            if not pending.waiters and self._pending.get(name) is pending:
                del self._pending[name]
