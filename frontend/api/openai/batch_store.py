"""Batches in Redis: their state, the answers so far, and the queue from which front ends take them."""

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any

from cluster_serving.frontend.api.openai.files import FileStore
from cluster_serving.frontend.api.openai.lifetime import KEPT
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.errors import FileNotFound
from cluster_serving.protocol.asynchronous.leases import LeaseQueue
from cluster_serving.protocol.errors import QueueFull

WINDOW = 24 * 3600
"""Seconds within which a batch is to be completed."""

_STATE, _OWNER, _CANCELLING, _BYTES = "batch", "owner", "cancelling_at", "bytes"
_TIMES = ("in_progress_at", "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at", "cancelled_at")
_ANSWERS = ("outputs", "errors")

_MOST_UNFINISHED, _MOST_LISTED = 64, 1000

UNFINISHED = ("validating", "in_progress", "finalizing", "cancelling")
"""States of batches that a front end has work with."""

Batch = dict[str, Any]
"""A batch as clients see it."""


def queue_of(home: str) -> LeaseQueue:
    """Return the queue of batches that are not completed."""
    return LeaseQueue(f"{home}:batches:due", f"{home}:batches:open")


def queued(owner: str) -> bytes:
    """Return the content of the queue for a batch of an owner, by which unfinished batches are counted."""
    return f"-{owner}".encode()


class BatchStore:
    """Keeps batches as long as files. The front end that has the lease of a batch writes its state, all others read."""

    def __init__(self, front: FrontEnd, files: FileStore) -> None:
        self.home = files.home
        self._dispatcher = front.dispatch.dispatcher(self.home)

    async def make(self, asked: Mapping[str, Any], owner: str) -> Batch:
        """Keep a new batch, of the parameters that its client has sent."""
        now = int(time.time())
        batch: Batch = {
            "id": f"batch_{uuid.uuid4().hex}",
            "object": "batch",
            "endpoint": asked["endpoint"],
            "errors": None,
            "input_file_id": asked["input_file_id"],
            "completion_window": "24h",
            "status": "validating",
            "output_file_id": None,
            "error_file_id": None,
            "created_at": now,
            "expires_at": now + WINDOW,
            **dict.fromkeys(_TIMES),
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
            "metadata": asked.get("metadata"),
        }
        if lifetime := asked.get("output_expires_after"):
            batch["output_expires_after"] = lifetime
        with self._dispatcher.using_redis():
            async with self._db.pipeline() as pipeline:
                pipeline.hset(self._key(batch["id"]), mapping={_STATE: json.dumps(batch), _OWNER: owner})
                pipeline.expire(self._key(batch["id"]), KEPT)
                pipeline.zadd(self._index(owner), {batch["id"]: time.time()})
                pipeline.expire(self._index(owner), KEPT)
                await pipeline.execute()
        return batch

    async def write(self, batch: Batch, status: str, **fields: Any) -> None:
        """Change the state of a batch."""
        batch |= {"status": status, f"{status}_at": batch[f"{status}_at"] or int(time.time()), **fields}
        with self._dispatcher.using_redis():
            await self._db.hset(self._key(batch["id"]), _STATE, json.dumps(batch))

    async def read(self, batch_id: str) -> tuple[Batch, str]:
        """Return a batch and its owner."""
        key = self._key(batch_id)
        with self._dispatcher.using_redis():
            async with self._db.pipeline(transaction=False) as pipeline:
                pipeline.hmget(key, _STATE, _OWNER, _CANCELLING)
                for kind in _ANSWERS:
                    pipeline.hlen(f"{key}:{kind}")
                (state, owner, cancelling), completed, failed = await pipeline.execute()
        if state is None:
            raise _unknown(batch_id)
        batch = json.loads(state)
        batch["cancelling_at"] = None if cancelling is None else int(cancelling)
        if batch["status"] in UNFINISHED:
            batch["request_counts"] |= {"completed": completed, "failed": failed}
            batch["status"] = batch["status"] if cancelling is None else "cancelling"
        return batch, owner.decode()

    async def get(self, batch_id: str, owner: str) -> Batch:
        """Return a batch of an owner."""
        batch, found = await self.read(batch_id)
        if found != owner:
            raise _unknown(batch_id)
        return batch

    async def of(self, owner: str) -> list[Batch]:
        """Return the latest batches of an owner, the newest first."""
        with self._dispatcher.using_redis():
            await self._db.zremrangebyscore(self._index(owner), "-inf", time.time() - KEPT)
            ids = await self._db.zrevrange(self._index(owner), 0, _MOST_LISTED - 1)
        found = []
        for batch_id in ids:
            try:
                found.append(await self.get(batch_id.decode(), owner))
            except FileNotFound:
                continue
        return found

    async def check_room(self, owner: str) -> None:
        """Check that an owner may have a further batch.

        Raises:
            QueueFull: If too many batches of the owner are unfinished.
        """
        with self._dispatcher.using_redis():
            waiting = await self._db.hgetall(queue_of(self.home).contents)
        if list(waiting.values()).count(queued(owner)) >= _MOST_UNFINISHED:
            raise QueueFull(f"{_MOST_UNFINISHED} batches are unfinished; wait for one, or cancel it")

    async def cancel(self, batch_id: str) -> None:
        """Ask the front end that has a batch to cancel it."""
        with self._dispatcher.using_redis():
            await self._db.hset(self._key(batch_id), _CANCELLING, int(time.time()))

    async def is_cancelled(self, batch_id: str) -> bool:
        """Return True if a batch is to be cancelled."""
        with self._dispatcher.using_redis():
            return bool(await self._db.hexists(self._key(batch_id), _CANCELLING))

    async def add_answer(self, batch_id: str, index: int, line: bytes, is_good: bool) -> int:
        """Keep the answer to a line, in place of an earlier one. Return the number of bytes of all answers so far."""
        key = f"{self._key(batch_id)}:{_ANSWERS[not is_good]}"
        with self._dispatcher.using_redis():
            async with self._db.pipeline(transaction=False) as pipeline:
                pipeline.hset(key, index, line)
                pipeline.expire(key, KEPT)
                pipeline.hincrby(self._key(batch_id), _BYTES, len(line))
                return int((await pipeline.execute())[-1])

    async def answered(self, batch_id: str) -> set[int]:
        """Return the indices of the lines that have an answer."""
        with self._dispatcher.using_redis():
            return {int(index) for kind in _ANSWERS for index in await self._db.hkeys(f"{self._key(batch_id)}:{kind}")}

    async def answers(self, batch_id: str) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """Return the outputs and the errors so far, by the index of their lines."""
        good, bad = [await self._all(f"{self._key(batch_id)}:{kind}") for kind in _ANSWERS]
        return good, bad

    async def forget_answers(self, batch_id: str) -> None:
        """Delete the answers, which are in files now."""
        with self._dispatcher.using_redis():
            await self._db.unlink(*(f"{self._key(batch_id)}:{kind}" for kind in _ANSWERS))

    async def _all(self, key: str) -> dict[int, bytes]:
        # In pages, so that Redis can serve other clients in between.
        with self._dispatcher.using_redis():
            return {int(index): line async for index, line in self._db.hscan_iter(key, count=100)}

    @property
    def _db(self) -> Any:
        return self._dispatcher.db

    def _index(self, owner: str) -> str:
        return f"{self.home}:batches:of:{owner}"

    def _key(self, batch_id: str) -> str:
        return f"{self.home}:batch:{batch_id}"


def _unknown(batch_id: str) -> FileNotFound:
    return FileNotFound(f"there is no batch {batch_id[:64]!r}, or it is no longer kept")
