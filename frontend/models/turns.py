"""Many coroutines of one request: only a few begin in one turn of the event loop."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

AT_ONCE = 50
"""Coroutines that begin before others have their turn: some milliseconds of requests to a job."""

T = TypeVar("T")


async def in_turns(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines at the same time as `asyncio.gather` does, but begin few of them in one turn of the event loop."""
    waiting = list(works)
    tasks: list[asyncio.Task[T]] = []
    try:
        for start in range(0, len(waiting), AT_ONCE):
            if tasks:
                await asyncio.sleep(0)
            tasks += map(asyncio.create_task, waiting[start : start + AT_ONCE])
        return await asyncio.gather(*tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        for work in waiting[len(tasks) :]:
            work.close()
        raise


async def in_window(works: Iterable[Coroutine[Any, Any, T]], size: int) -> list[T]:
    """Run coroutines, at most `size` at a time, and return their results in order; each is made when it begins."""
    results: dict[int, T] = {}
    numbered = enumerate(works)

    async def run() -> None:
        for index, work in numbered:
            results[index] = await work

    await in_turns(run() for _ in range(size))
    return [results[index] for index in range(len(results))]
