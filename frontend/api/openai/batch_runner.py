"""Computation of batches: the requests of a file go to the queues of the jobs with the priority `low`."""

import asyncio
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress

from cluster_serving.frontend.api.openai import batch_lines
from cluster_serving.frontend.api.openai.batch_lines import Line
from cluster_serving.frontend.api.openai.batch_store import UNFINISHED, Batch, BatchStore, queue_of, queued
from cluster_serving.frontend.api.openai.codecs import outputs, read_request
from cluster_serving.frontend.api.openai.files import FileStore
from cluster_serving.frontend.api.openai.lifetime import seconds_of
from cluster_serving.frontend.caller import set_caller
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.dataplane import DataPlane
from cluster_serving.frontend.errors import FileNotFound, ModelNotReady, Overloaded, unexpected
from cluster_serving.frontend.models import leased_work
from cluster_serving.frontend.models.leased_work import LeasedWork
from cluster_serving.frontend.models.turns import in_window
from cluster_serving.frontend.server import failures
from cluster_serving.frontend.server.http.error_bodies import openai_body
from cluster_serving.frontend.server.http.responses import dumps
from cluster_serving.protocol.errors import QueueFull, RedisUnavailable, RequestLost, RequestTooLarge, ServingError

_MOST_BATCHES = 4
_AT_ONCE = 64
"""Requests of a batch at a time: enough to fill batches of a model, and few beside the requests of others."""

_PATIENCE, _PAUSE = 10, 30.0
"""Seconds for which no model of a batch is ready until others get its place, and until it is looked at again."""

_GRACE = 60.0

_LATE = 3600.0
"""Seconds after which an expired batch ends unread, also if reading its file has ended front ends."""

_LATER = (RedisUnavailable, Overloaded, QueueFull, ModelNotReady, RequestLost)
"""Errors after which a request is sent again, until the batch expires."""


class BatchRunner:
    """Takes batches from the queue, and computes what is not answered yet."""

    def __init__(self, front: FrontEnd, files: FileStore, store: BatchStore) -> None:
        self._front, self._files, self._store, self._plane = front, files, store, DataPlane(front)
        self._work = LeasedWork(front.dispatch, queue_of, self._jobs, self._run, _MOST_BATCHES)
        # The other places are for requests whose clients wait.
        self._places = asyncio.Semaphore(max(1, front.dispatch.limit.most // 4))
        self.start, self.close = self._work.start, self._work.close

    async def add(self, batch: Batch, owner: str) -> None:
        """Queue a batch."""
        await self._work.add(self._store.home, batch["id"], queued(owner))

    async def _jobs(self) -> tuple[str]:
        return (self._store.home,)

    async def _run(self, home: str, batch_id: str, _: bytes) -> None:
        with suppress(FileNotFound):
            batch, owner = await self._store.read(batch_id)
            set_caller(owner, "")
            if batch["status"] in UNFINISHED and not await self._complete(batch, owner):
                await self._work.call(home, queue_of(home).renew([batch_id], _PAUSE))
                return
        await self._work.call(home, queue_of(home).end(batch_id))
        await self._store.forget_answers(batch_id)

    async def _complete(self, batch: Batch, owner: str) -> bool:
        """End a batch; return False if it has to wait until a model is ready."""
        if time.time() > batch["expires_at"] + _LATE:
            await self._finish(batch, [], owner)
            return True
        try:
            content = await self._files.content(batch["input_file_id"], owner)
        except FileNotFound:
            content = b""
        lines, errors = await asyncio.to_thread(batch_lines.read, content, batch["endpoint"])
        if errors:
            await self._store.write(batch, "failed", errors={"object": "list", "data": errors})
            return True
        try:
            if not await self._compute(batch, lines):
                return False
        except RequestTooLarge as error:
            data = [{"code": error.code, "line": None, "message": str(error), "param": None}]
            await self._store.write(batch, "failed", errors={"object": "list", "data": data})
            return True
        await self._finish(batch, lines, owner)
        return True

    async def _compute(self, batch: Batch, lines: list[Line]) -> bool:
        """Answer all lines, or those until the batch is cancelled or expires; return False if no model is ready."""
        counts = {"total": len(lines), "completed": 0, "failed": 0}
        await self._store.write(batch, "in_progress", request_counts=counts)
        left = sorted(set(range(len(lines))) - await self._store.answered(batch["id"]))
        waits: dict[int, bool] = {}
        answers = (self._answer(batch, index, lines[index], waits) for index in left)
        work, turns = asyncio.ensure_future(in_window(answers, _AT_ONCE)), 0
        try:
            while not work.done() and time.time() < batch["expires_at"]:
                await asyncio.wait({work}, timeout=leased_work.TURN)
                if await self._store.is_cancelled(batch["id"]):
                    break
                turns = turns + 1 if waits and all(waits.values()) else 0
                if turns * leased_work.TURN >= _PATIENCE:
                    return False
            if work.done():
                work.result()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        return True

    async def _finish(self, batch: Batch, lines: list[Line], owner: str) -> None:
        good, bad = await self._store.answers(batch["id"])
        total = len(lines) or batch["request_counts"]["total"]
        if (await self._store.read(batch["id"]))[0]["status"] not in UNFINISHED:
            # Another front end has ended it while this one had lost its lease, and deletes the answers.
            return
        await self._store.write(batch, "finalizing")
        status = "cancelled" if await self._store.is_cancelled(batch["id"]) else "completed"
        if (not lines or len(good) + len(bad) < len(lines)) and status == "completed":
            status = "expired"
            rest = (index for index in range(len(lines)) if index not in good and index not in bad)
            bad |= {index: batch_lines.expired(lines[index].custom_id, _new_id()) for index in rest}
        await self._store.write(
            batch,
            status,
            output_file_id=await self._file(batch, good, "output", owner),
            error_file_id=await self._file(batch, bad, "error", owner),
            request_counts={"total": total, "completed": len(good), "failed": len(bad)},
        )

    async def _file(self, batch: Batch, found: Mapping[int, bytes], kind: str, owner: str) -> str | None:
        if not found:
            return None
        content, name = b"".join(found[index] + b"\n" for index in sorted(found)), f"{batch['id']}_{kind}.jsonl"
        kept = seconds_of("output_expires_after", batch.get("output_expires_after"))
        return (await self._files.put(content, name, "batch_output", owner, kept, bounded=False)).id

    async def _answer(self, batch: Batch, index: int, line: Line, waits: dict[int, bool]) -> None:
        """Answer a line, however long it takes, unless its batch has ended; `waits` tells if its model is not ready."""
        waits[index] = False
        while batch["status"] == "in_progress":
            try:
                async with self._places:
                    status, body = 200, await self._body(batch, line)
            except _LATER as error:
                waits[index] = isinstance(error, ModelNotReady)
                await asyncio.sleep(leased_work.TURN)
                continue
            except ServingError as error:
                status, body = error.http_status, dumps(openai_body(error))
            except Exception as error:
                failure = unexpected(error)
                failures.note(failure)
                status, body = 500, dumps(openai_body(failure))
            del waits[index]
            written = batch_lines.answer(line.custom_id, _new_id(), status, body)
            if batch["status"] == "in_progress":
                await self._keep(batch["id"], index, written, status == 200)
            return

    async def _keep(self, batch_id: str, index: int, written: bytes, is_good: bool) -> None:
        size = 0
        while not size:
            with suppress(RedisUnavailable):
                size = await self._store.add_answer(batch_id, index, written, is_good)
                continue
            await asyncio.sleep(leased_work.TURN)
        most = self._front.options.max_file_bytes
        if size > most:
            raise RequestTooLarge(f"the answers have more than {most} bytes (maxFileBytes); split the file")

    async def _body(self, batch: Batch, line: Line) -> bytes:
        front, codec = self._front, batch_lines.ENDPOINTS[batch["endpoint"]]()
        asked, model = await read_request(front, self._plane, codec, line.body, front.registry.model)
        front.metrics.asked(codec.protocol, model.name, len(asked.records))
        # What expires is withdrawn before.
        seconds = batch["expires_at"] - time.time() + _GRACE
        answered = await front.dispatch.predict(
            *(model.job, asked.records, seconds, "low", model.asked, model.together, 1, asked.counted)
        )
        body: bytes = await self._plane.write(codec, model, asked, outputs(answered.outcomes))
        return body


def _new_id() -> str:
    return f"batch_req_{uuid.uuid4().hex}"
