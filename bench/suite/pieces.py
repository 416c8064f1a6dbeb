"""The time from the making of a piece of an answer to its arrival at the client."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import httpx
import numpy as np

from cluster_serving.client import AsyncInputQueue
from cluster_serving.client.result import Result

HANDLER = """
import time


class Handler:
    inputs = {"prompt": "str"}
    outputs = {"text": "str"}

    def predict(self, batch):
        for _ in range(100):
            yield {"text": [repr(time.time())] * len(batch["prompt"])}
            time.sleep(0.01)
"""
"""Makes a piece every 10 ms, which says when it was made, by the clock of this machine."""


def save_handler(folder: Path) -> None:
    """Write the handler into a model folder."""
    (folder / "handler.py").write_text(HANDLER, "utf8")


async def from_queue(queue: AsyncInputQueue) -> AsyncIterator[float]:
    """Yield the delays of the pieces of one answer, in seconds, with the asyncio client."""
    async for piece in queue.stream({"prompt": np.array("go")}):
        now = time.time()
        if isinstance(piece, Result):
            yield now - float(piece["text"].item())


async def from_http(client: httpx.AsyncClient, url: str, job: str) -> AsyncIterator[float]:
    """Yield the delays of the pieces of one answer, in seconds, from the events of a completion."""
    body = {"model": job, "prompt": "go", "stream": True}
    async with client.stream("POST", f"{url}/v1/completions", json=body) as response:
        async for line in response.aiter_lines():
            now = time.time()
            if line.startswith("data: {"):
                text = json.loads(line[6:])["choices"][0]["text"]
                if text:
                    yield now - float(text)


async def delays(stream: Callable[[], AsyncIterator[float]], streams: int, answers: int) -> dict[str, float]:
    """Read answers, so many streams at a time; return percentiles of the delays in milliseconds."""
    first: list[float] = []
    others: list[float] = []

    async def read() -> None:
        for _ in range(answers):
            async with aclosing(stream()) as pieces:  # type: ignore[type-var]
                begun = False
                async for seconds in pieces:
                    (others if begun else first).append(1000 * seconds)
                    begun = True

    await asyncio.gather(*(read() for _ in range(streams)))
    p50, p99 = np.percentile(others, [50, 99])
    return {
        "first_ms": float(np.median(first)),
        "longest_first_ms": max(first),
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "pieces": len(first) + len(others),
    }
