"""The page `/ui`: what it shows."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cluster_serving.frontend.api import assets
from cluster_serving.frontend.api.original.http import describe
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.models.registry import ServedModel
from cluster_serving.frontend.server.middleware import note
from cluster_serving.frontend.server.responses import Json
from cluster_serving.protocol.keys import stats_key
from cluster_serving.protocol.stats import LATENCY_BOUNDS_MS, JobStats

_API_DOCS = "/docs"


def routes(front: FrontEnd) -> list[Route]:
    """The paths of the page."""

    async def data(request: Request) -> Response:
        note(request, "page")
        return Json(await _data(front, request), headers={"cache-control": "no-store"})

    return [*assets.routes(), Route("/ui/data", data, methods=["GET"])]


async def _data(front: FrontEnd, request: Request) -> dict[str, Any]:
    """All that the page shows, as it is now; rates are the page's own differences of two of these."""
    registry, dispatch = front.registry, front.dispatch
    models = await registry.versions()

    def totals(pipeline: Any, job: str) -> None:
        pipeline.hgetall(stats_key(job))

    found = await dispatch.ask_all([model.job for model in models], totals)
    queues = await registry.queue_lengths(models)
    has_docs = any(getattr(route, "path", "") == _API_DOCS for route in request.app.routes)
    return {
        # Only differences of it count.
        "time": time.time() * 1000,
        "latencyBounds": LATENCY_BOUNDS_MS,
        "apiDocs": _API_DOCS if has_docs else "",
        "flinkUrl": front.options.flink_address,
        "models": [
            _described(model, queue, JobStats.read(fields))
            for model, queue, (fields,) in zip(models, queues, found, strict=True)
        ],
    }


def _described(model: ServedModel, queue: int, stats: JobStats) -> dict[str, Any]:
    totals = asdict(stats)
    del totals["seen_ms"]
    return {
        **describe(model),
        "slotReports": [
            {"index": slot.index, "state": slot.state, "code": slot.code, "error": slot.error} for slot in model.reports
        ],
        "queue": queue,
        "stats": totals,
    }
