"""The connections to Redis: one for all jobs, or, in a Redis Cluster, one for each job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any

from cluster_serving.frontend.errors import ModelNotFound
from cluster_serving.frontend.models.deferred import DeferredExchange
from cluster_serving.protocol.connection import connect_async, translated
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.failover import is_cluster_url


class Exchanges:
    """Knows which exchange a job's requests go through; used by one event loop.

    All keys of a job are on one node of a cluster, so an exchange that finds that node serves it as any other Redis.

    Args:
        redis_url: See `protocol.connection.open_redis`.
        jobs: The jobs, if it is a cluster's; no others can be asked then.
        redis_options: Further arguments of `protocol.connection.connect_async`.
        options: Further arguments of `Exchange`.

    Raises:
        InvalidInput: A job cannot be in a cluster.
    """

    def __init__(
        self,
        redis_url: str,
        jobs: Sequence[str] = (),
        redis_options: Mapping[str, Any] = MappingProxyType({}),
        **options: Any,
    ) -> None:
        self.is_cluster = is_cluster_url(redis_url)
        self._of_job = {
            job: DeferredExchange(connect_async(url=redis_url, job=job, **redis_options), **options)
            for job in (jobs if self.is_cluster else [""])
        }

    def of(self, job: str) -> DeferredExchange:
        """The exchange of a job.

        Raises:
            ModelNotFound: It is not among those of this cluster.
        """
        exchange = self._of_job.get(job if self.is_cluster else "")
        if exchange is None:
            raise ModelNotFound(f"there is no job {job!r}")
        return exchange

    def all(self) -> list[DeferredExchange]:
        """All of them."""
        return list(self._of_job.values())

    async def ask(self, jobs: Sequence[str], commands: Callable[[Any, str], object]) -> list[list[Any] | ServingError]:
        """Ask Redis about jobs; those of one Redis together, and different ones at the same time.

        Args:
            jobs: Names of jobs.
            commands: Puts what is asked about a job into a pipeline.

        Returns:
            The replies about each job, or why there are none; what Redis refuses of one concerns no other.
        """
        positions: dict[DeferredExchange, list[int]] = {}
        for position, job in enumerate(jobs):
            positions.setdefault(self.of(job), []).append(position)
        found: list[list[Any] | ServingError] = [[] for _ in jobs]

        async def ask_one(exchange: DeferredExchange, asked: Sequence[int]) -> None:
            # redis-py types its commands as if they might not be awaitable.
            db: Any = exchange.db
            counts = []
            try:
                with translated(db):
                    async with db.pipeline(transaction=False) as pipeline:
                        for position in asked:
                            before = len(pipeline)
                            commands(pipeline, jobs[position])
                            counts.append(len(pipeline) - before)
                        replies = iter(await pipeline.execute(raise_on_error=False))
            except ServingError as error:
                for position in asked:
                    found[position] = error
                return
            for position, count in zip(asked, counts, strict=True):
                found[position] = _checked(db, list(islice(replies, count)))

        await asyncio.gather(*(ask_one(exchange, asked) for exchange, asked in positions.items()))
        return found

    async def ask_all(self, jobs: Sequence[str], commands: Callable[[Any, str], object]) -> list[list[Any]]:
        """Like `ask`, if there are replies about all jobs.

        Raises:
            RedisUnavailable: A Redis cannot be reached.
            ServingError: It refuses what is asked.
        """
        found = []
        for replies in await self.ask(jobs, commands):
            if isinstance(replies, ServingError):
                raise replies
            found.append(replies)
        return found

    async def close(self) -> None:
        """Close the connections."""
        for exchange in self._of_job.values():
            await exchange.close()


def _checked(db: Any, replies: list[Any]) -> list[Any] | ServingError:
    """Replies, or the first error among them."""
    try:
        with translated(db):
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
    except ServingError as error:
        return error
    return replies
