"""Files of batches: in Redis, with a bound on all of them, and for some days."""

import json
import time
import uuid
from collections.abc import AsyncGenerator
from dataclasses import asdict, dataclass
from typing import Any

from cluster_serving.frontend.api.openai.lifetime import KEPT
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.errors import FileNotFound
from cluster_serving.protocol.errors import QueueFull

_LEAST_COUNTED = 64 << 10
_PAGE = 1 << 20


@dataclass(frozen=True)
class StoredFile:
    """A file apart from its content; `owner` is the name of the API key that has sent it, empty without keys."""

    id: str
    filename: str
    purpose: str
    bytes: int
    created_at: int
    expires_at: int
    owner: str = ""

    def shown(self) -> dict[str, Any]:
        """Return the file as clients see it."""
        return {key: value for key, value in asdict(self).items() if key != "owner"} | {
            "object": "file",
            "status": "processed",
        }


class FileStore:
    """Keeps files. One of another owner is unknown, as one that has expired is: `FileNotFound`.

    Attributes:
        home: Name with which the keys begin; see `Dispatch`.
    """

    def __init__(self, front: FrontEnd) -> None:
        self._most = front.options.max_file_bytes
        self.home = front.dispatch.home
        self._dispatcher = front.dispatch.dispatcher(self.home)
        self._index = f"{self.home}:files"

    async def put(
        self, content: bytes, filename: str, purpose: str, owner: str, kept: int = KEPT, bounded: bool = True
    ) -> StoredFile:
        """Keep a file for `kept` seconds.

        Raises:
            QueueFull: See `check_room`; not raised unless the file is `bounded`.
        """
        now, db = time.time(), self._db
        times = int(now), int(now) + kept
        file = StoredFile(f"file-{uuid.uuid4().hex}", filename, purpose, len(content), *times, owner)
        if bounded:
            await self.check_room(len(content))
        with self._dispatcher.using_redis():
            async with db.pipeline() as pipeline:
                key = self._key(file.id)
                pipeline.hset(key, "file", json.dumps(asdict(file)))
                pipeline.expire(key, kept)
                pipeline.set(_content_key(key), content, ex=kept)
                pipeline.zadd(self._index, {file.id: now + kept})
                await pipeline.execute()
        return file

    async def check_room(self, size: int = 0) -> None:
        """Check that there is room for a further file.

        Raises:
            QueueFull: If all files together would be larger than `maxFileBytes`. Each counts as 64 KiB at least, so
                that their number has a limit, too.
        """
        sizes = [size, *(file.bytes for file in await self._all())]
        if sum(max(each, _LEAST_COUNTED) for each in sizes) > self._most:
            raise QueueFull(
                f"all files together would have more than {self._most} bytes (maxFileBytes), each at least "
                f"{_LEAST_COUNTED}; DELETE /v1/files/<id>"
            )

    async def get(self, file_id: str, owner: str) -> StoredFile:
        """Return a file."""
        with self._dispatcher.using_redis():
            text = await self._db.hget(self._key(file_id), "file")
        file = StoredFile(**json.loads(text)) if text else None
        if file is None or file.owner != owner:
            raise FileNotFound(f"there is no file {file_id[:64]!r}, or it is no longer kept")
        return file

    async def content(self, file_id: str, owner: str) -> bytes:
        """Return the content of a file."""
        return b"".join([page async for page in self.pages(await self.get(file_id, owner))])

    async def pages(self, file: StoredFile) -> AsyncGenerator[bytes, None]:
        """Yield the content of a file in pages, so that neither Redis nor the front end is busy with all of it."""
        for start in range(0, file.bytes, _PAGE):
            with self._dispatcher.using_redis():
                page = await self._db.getrange(_content_key(self._key(file.id)), start, start + _PAGE - 1)
            yield page

    async def delete(self, file_id: str, owner: str) -> None:
        """Delete a file."""
        await self.get(file_id, owner)
        with self._dispatcher.using_redis():
            await self._db.unlink(self._key(file_id), _content_key(self._key(file_id)))
            await self._db.zrem(self._index, file_id)

    async def of(self, owner: str) -> list[StoredFile]:
        """Return the files of an owner, the newest first."""
        files = [file for file in reversed(await self._all()) if file.owner == owner]
        return sorted(files, key=lambda file: file.created_at, reverse=True)

    async def _all(self) -> list[StoredFile]:
        with self._dispatcher.using_redis():
            await self._db.zremrangebyscore(self._index, "-inf", time.time())
            async with self._db.pipeline(transaction=False) as pipeline:
                for file_id in await self._db.zrange(self._index, 0, -1):
                    pipeline.hget(self._key(file_id.decode()), "file")
                texts = await pipeline.execute()
        return [StoredFile(**json.loads(text)) for text in texts if text]

    @property
    def _db(self) -> Any:
        return self._dispatcher.db

    def _key(self, file_id: str) -> str:
        return f"{self.home}:file:{file_id}"


def _content_key(key: str) -> str:
    return f"{key}:content"
