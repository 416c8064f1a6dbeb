"""The page `/ui`: its files, and what it shows."""

from __future__ import annotations

import mimetypes
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cluster_serving.client.connection import translated
from cluster_serving.client.protocol import stats_key
from cluster_serving.client.stats import LATENCY_BOUNDS_MS, JobStats
from cluster_serving.frontend.answering import Json
from cluster_serving.frontend.front_end import FrontEnd
from cluster_serving.frontend.gateway import ServedModel
from cluster_serving.frontend.original import describe

_FILES = {path.name: path.read_bytes() for path in sorted((Path(__file__).parent / "ui").iterdir())}
_INDEX = "index.html"

PUBLIC = frozenset({"/ui", *(f"/ui/{name}" for name in _FILES)})
"""Paths of the page and its files, which hold no data and need no API key; `/ui/data` does."""

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    # After an upgrade, files of two versions must not meet.
    "cache-control": "no-cache",
}
_API_DOCS = ("/docs", "/openapi.json", "/openapi.yaml")


def routes(front: FrontEnd) -> list[Route]:
    """The paths of the page."""

    async def data(request: Request) -> Response:
        return Json(await _data(front, request), headers={"cache-control": "no-store"})

    return [
        Route("/ui", _sends(_INDEX), methods=["GET"]),
        Route("/ui/data", data, methods=["GET"]),
        *(Route(f"/ui/{name}", _sends(name), methods=["GET"]) for name in _FILES),
    ]


def _sends(name: str) -> Callable[[Request], Awaitable[Response]]:
    kind = mimetypes.guess_type(name)[0]

    async def send(_: Request) -> Response:
        return Response(_FILES[name], media_type=kind, headers=_HEADERS)

    return send


async def _data(front: FrontEnd, request: Request) -> dict[str, Any]:
    """All that the page shows, as it is now; rates are the page's own differences of two of these."""
    gateway = front.gateway
    models = await gateway.listed()
    # redis-py types its commands as if they might not be awaitable.
    db: Any = gateway.exchange.db
    with translated(db):
        async with db.pipeline(transaction=False) as pipeline:
            pipeline.time()
            for model in models:
                pipeline.xlen(model.job)
                pipeline.hgetall(stats_key(model.job))
            (seconds, microseconds), *replies = await pipeline.execute()
    now = seconds * 1000 + microseconds / 1000
    paths = {getattr(route, "path", "") for route in request.app.routes}
    return {
        "time": now,
        "latencyBounds": LATENCY_BOUNDS_MS,
        "apiDocs": next((path for path in _API_DOCS if path in paths), ""),
        "flinkUrl": front.options.flink_ui_url,
        "models": [
            _described(model, queue, JobStats.read(fields), now)
            for model, queue, fields in zip(models, replies[::2], replies[1::2], strict=True)
        ],
    }


def _described(model: ServedModel, queue: int, stats: JobStats, now: float) -> dict[str, Any]:
    totals = asdict(stats)
    seen = totals.pop("seen_ms")
    return {
        **describe(model),
        "slotReports": [
            {"index": slot.index, "state": slot.state, "code": slot.code, "error": slot.error} for slot in model.reports
        ],
        "queue": queue,
        "stats": totals,
        # None: not known.
        "silentSeconds": None if seen is None else max(0.0, (now - seen) / 1000),
    }
