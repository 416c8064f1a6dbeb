"""Several streams as one."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar

T = TypeVar("T")

_closing: set[asyncio.Task[None]] = set()


async def merged(streams: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[tuple[int, T], None]:
    """Yield the items of all streams as they come, each with the index of its stream.

    The first error of a stream ends all of them, as does the end of the iteration.
    """
    waiting: dict[asyncio.Task[T | None], int] = {}

    def proceed(index: int) -> None:
        waiting[asyncio.create_task(_next(streams[index]))] = index

    for index in range(len(streams)):
        proceed(index)
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                index = waiting.pop(task)
                item = task.result()
                if item is not None:
                    yield index, item
                    proceed(index)
    finally:
        for task in waiting:
            task.cancel()
        # A task of its own: the server cancels each wait of this one once its client has gone.
        closing = asyncio.create_task(_close(streams, [*waiting]))
        _closing.add(closing)
        closing.add_done_callback(_closing.discard)
        await asyncio.shield(closing)


async def _close(streams: Sequence[AsyncGenerator[T, None]], waiting: Sequence[asyncio.Task[T | None]]) -> None:
    """Close streams, each of which stops its request."""
    await asyncio.gather(*waiting, return_exceptions=True)
    await asyncio.gather(*(stream.aclose() for stream in streams), return_exceptions=True)


async def _next(stream: AsyncGenerator[T, None]) -> T | None:
    return await anext(stream, None)
