"""The page `/ui`: its files, and the data that it shows."""

import mimetypes
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cluster_serving.frontend.api.original.http import describe
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.models.registry import PublishedModel
from cluster_serving.frontend.server.http.call import call_of
from cluster_serving.frontend.server.http.responses import Json
from cluster_serving.protocol.stats import LATENCY_BOUNDS_MS, JobStats

_INDEX = "index.html"
_FILES = {
    "/ui" if path.name == _INDEX else f"/ui/{path.name}": path
    for path in sorted((Path(__file__).parents[1] / "ui").iterdir())
}

PATHS = frozenset(_FILES)
"""Paths of the files; they need no API key, because they hold no data."""

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    # Without it a browser might mix files of two versions after an upgrade.
    "cache-control": "no-cache",
}


def routes(front: FrontEnd) -> list[Route]:
    """Return the routes of the page and of its files."""

    async def data(request: Request) -> Response:
        call_of(request).protocol = "page"
        return Json(await _data(front), headers={"cache-control": "no-store"})

    files = [Route(address, _file(path), methods=["GET"]) for address, path in _FILES.items()]
    return [*files, Route("/ui/data", data, methods=["GET"])]


def _file(path: Path) -> Response:
    return Response(path.read_bytes(), media_type=mimetypes.guess_type(path.name)[0], headers=_HEADERS)


async def _data(front: FrontEnd) -> dict[str, Any]:
    """Return the data that the page shows. The page computes rates from the differences of two such answers."""
    registry = front.registry
    models = await registry.versions()
    stats = await registry.stats(models)
    queues = await registry.queue_lengths(models)
    return {
        # The page uses only differences of times, so the clocks of server and browser may differ.
        "time": time.time() * 1000,
        "latencyBounds": LATENCY_BOUNDS_MS,
        "apiDocs": "/docs",
        "flinkUrl": front.options.flink_address,
        "models": [
            _described(front, model, queue, totals) for model, queue, totals in zip(models, queues, stats, strict=True)
        ],
    }


def _described(front: FrontEnd, model: PublishedModel, queue: int, stats: JobStats) -> dict[str, Any]:
    return {
        **describe(front, model),
        "slotReports": [
            {
                "index": slot.index,
                "state": slot.state,
                "device": slot.device,
                "code": slot.code,
                "error": slot.error,
            }
            for slot in model.reports
        ],
        "queue": queue,
        "stats": asdict(stats),
    }
