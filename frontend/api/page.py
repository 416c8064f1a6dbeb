"""The pages `/ui` and `/docs`: their files, and the data that `/ui` shows."""

import json
import mimetypes
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cluster_serving.frontend.api.bodies import read_body
from cluster_serving.frontend.api.changes import check_change
from cluster_serving.frontend.api.json_text import check_names, parse
from cluster_serving.frontend.api.original.http import describe
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.models import dead_letters
from cluster_serving.frontend.models.figures import readings as read
from cluster_serving.frontend.models.history import figures
from cluster_serving.frontend.models.registry import PublishedModel
from cluster_serving.frontend.server.http.call import call_of
from cluster_serving.frontend.server.http.query import QueryRoute
from cluster_serving.frontend.server.http.responses import Json
from cluster_serving.frontend.server.http.validated import Validated
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.events import Event
from cluster_serving.protocol.figures.exposition import Reading
from cluster_serving.protocol.figures.metrics import COMPUTE, CPU_TIME, PROCESS_MEMORY
from cluster_serving.protocol.figures.stats import LATENCY_BOUNDS_MS
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport

_PAGES = {"index.html": "/ui", "docs.html": "/docs"}
_FILES = {
    _PAGES.get(path.name, f"/ui/{path.name}"): path for path in sorted((Path(__file__).parents[1] / "ui").iterdir())
}

_MOST_EVENTS = 100
_MOST_LETTERS = 1000
_LONGEST_REQUEST = 64 << 10

PATHS = frozenset(_FILES)
"""Paths of the files; they need no API key, because they hold no data."""

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


def routes(front: FrontEnd) -> list[Route]:
    """Return the routes of the page, of its files and of its data."""
    api = _Page(front)
    files = [Route(address, _file(path), methods=["GET"]) for address, path in _FILES.items()]
    return [
        *files,
        Route("/ui/data", api.data, methods=["GET"]),
        QueryRoute("/ui/models/{name}", api.model, methods=["GET"], query=("since",)),
        Route("/ui/models/{name}/requeue", api.requeue, methods=["POST"]),
    ]


def _file(path: Path) -> Response:
    return Validated(path.read_bytes(), mimetypes.guess_type(path.name)[0], _HEADERS)


class _Page:
    def __init__(self, front: FrontEnd) -> None:
        self._front = front

    async def data(self, request: Request) -> Response:
        """Return the state of all models. The page computes rates from the differences of two such answers."""
        call_of(request).protocol = "page"
        front, registry = self._front, self._front.registry
        models = await registry.versions()
        readings = {reading.job: reading for reading in await read(front.dispatch, models, hosts=True)}
        content = {
            # The page uses only differences of times, so the clocks of server and browser may differ.
            "time": time.time() * 1000,
            "latencyBounds": LATENCY_BOUNDS_MS,
            "flinkUrl": front.options.flink_address,
            "traceUrl": front.options.trace_url,
            "mayChange": front.options.is_local or front.admission.has_keys,
            "models": [self._described(model, readings) for model in models],
            "jobs": {model.job: figures(readings[model.job]) for model in models if model.job in readings},
        }
        return Json(content)

    async def model(self, request: Request) -> Response:
        """Return what happened to a model: samples after the time `since`, events and dead letters, newest first."""
        call_of(request).protocol = "page"
        since = request.query_params.get("since", "0")
        if not (since.isascii() and since.isdecimal()) or len(since) > 16:
            raise InvalidInput(f"since is {since[:32]!r}; expected a time in milliseconds since the epoch")
        model = await self._front.registry.model(request.path_params["name"])

        def ask(pipeline: Any, job: str) -> None:
            pipeline.xrange(JobKeys(job).history, min=str(int(since) + 1))
            pipeline.xrevrange(JobKeys(job).events, count=_MOST_EVENTS)
            pipeline.execute_command(*dead_letters.newest_call(job).command(by_text=True))

        # What happens to the slots of a job of several models happens to each of them.
        (history, events, letters), *host = await self._front.dispatch.ask_all(
            [model.job, *filter(None, [model.host])], ask
        )
        told = [Event.of(*event) for event in (*events, *(event for each in host for event in each[1]))]
        told.sort(key=lambda event: event.time, reverse=True)
        content = {
            "history": [json.loads(sample[b"figures"]) for _, sample in history],
            "events": [asdict(event) for event in told[:_MOST_EVENTS]],
            "deadLetters": [self._letter(*letter) for letter in letters],
        }
        return Json(content)

    async def requeue(self, request: Request) -> Response:
        """Queue dead letters of a model again."""
        call = call_of(request)
        call.protocol = "page"
        check_change(request, self._front.options, "queue dead letters again")
        asked = parse(await read_body(call, self._front.options, _LONGEST_REQUEST))
        check_names(asked, ("ids",))
        ids = asked.get("ids")
        if not isinstance(ids, list) or len(ids) > _MOST_LETTERS or not all(isinstance(each, str) for each in ids):
            raise InvalidInput(f"'ids' is not a list of up to {_MOST_LETTERS} ids of dead letters")
        job = (await self._front.registry.model(request.path_params["name"])).job
        by = f"/ui ({call.client})" if call.client else "/ui"
        refused = await dead_letters.requeue(self._front.dispatch, job, ids, by)
        return Json({"requeued": [each for each in ids if each not in refused], "refused": refused})

    def _described(self, model: PublishedModel, readings: Mapping[str, Reading]) -> dict[str, Any]:
        reading, host = readings.get(model.job), readings.get(model.host)
        reports = []
        for each in model.reports:
            values = reading.slots.get((each.version, str(each.index)), {}) if reading else {}
            process = _of_process(host, each) if model.host else values
            reports.append(self._slot(each, values, process))
        return {**describe(self._front, model), "canary": model.canary, "slotReports": reports}

    def _slot(self, slot: SlotReport, values: Mapping[str, int], process: Mapping[str, int]) -> dict[str, Any]:
        told = {name: getattr(slot, name) for name in ("index", "state", "device", "threads", "restarts", "code")}
        return {
            **told,
            "error": slot.error and self._told(slot.error),
            "computeUs": values.get(COMPUTE.sum, 0),
            "cpuUs": process.get(CPU_TIME.name, 0),
            "memory": process.get(PROCESS_MEMORY.name, 0),
        }

    def _letter(self, letter_id: bytes, fields: Sequence[bytes]) -> dict[str, Any]:
        letter = dead_letters.described(letter_id, fields)
        return letter | {name: letter[name] and self._told(letter[name]) for name in ("error", "traceback")}

    def _told(self, cause: str) -> str:
        return self._front.told(cause, "cluster-serving-cli has the cause")


def _of_process(host: Reading | None, slot: SlotReport) -> Mapping[str, int]:
    """Return the figures of the process that has a slot of a job of several models."""
    found = [] if host is None else [each for (_, index), each in host.slots.items() if index == str(slot.index)]
    return next((each for each in found if PROCESS_MEMORY.name in each), {})
