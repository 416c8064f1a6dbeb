"""Monitoring: `/metrics` and `/health/…`."""

from contextlib import suppress

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cluster_serving.frontend.api.original.http import describe
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.models.figures import readings
from cluster_serving.frontend.models.registry import PublishedModel
from cluster_serving.frontend.server.http.call import call_of
from cluster_serving.frontend.server.http.responses import Json
from cluster_serving.frontend.server.metrics import JobLabels, as_json, as_text
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.figures.exposition import Reading, exposition

_PROMETHEUS = ("text/plain", "text/*", "application/openmetrics-text")


def routes(front: FrontEnd) -> list[Route]:
    """Return the routes of monitoring."""
    api = _Monitoring(front)
    return [
        Route("/metrics", api.metrics, methods=["GET"]),
        Route("/health/live", api.live, methods=["GET"]),
        Route("/health/ready", api.ready, methods=["GET"]),
        # As vLLM has it, which load tools and gateways of language models ask before anything else.
        Route("/health", api.ready, methods=["GET"]),
    ]


class _Monitoring:
    def __init__(self, front: FrontEnd) -> None:
        self._front = front

    async def metrics(self, request: Request) -> Response:
        call_of(request).protocol = "metrics"
        accepted = call_of(request).choices(b"accept")
        wanted = max(accepted.get(kind, 0.0) for kind in _PROMETHEUS)
        # Prometheus names its formats in the header Accept; the original's clients do not.
        if not wanted or wanted < accepted.get("application/json", 0.0):
            return Json(as_json(await self._front.total_metrics()))
        front, registry = self._front, self._front.registry
        jobs: list[Reading] = []
        reached = False
        # Without Redis nothing is known of the jobs, but the other metrics are still wanted.
        with suppress(ServingError):
            jobs = await readings(front.dispatch, await registry.versions(), hosts=True)
            reached = True
        ready = {_labels(model): reached and front.health.is_ready(model) for model in registry.last_read()}
        text = as_text(await front.total_metrics(), ready)
        return Response(text + exposition(jobs).encode(), media_type=CONTENT_TYPE_LATEST)

    async def live(self, request: Request) -> Response:
        call_of(request).protocol = "health"
        return Json({"live": True})

    async def ready(self, request: Request) -> Response:
        call = call_of(request)
        call.protocol = "health"
        problems = await self._front.health.problems()
        # A probe has no key, and the reasons name models and files.
        known = call.client or not self._front.admission.has_keys
        if not problems:
            models = self._front.registry.last_read() if known else ()
            refused = {model.name: describe(self._front, model)["refusedModel"] for model in models if model.refused}
            return Json({"ready": True, "refusedModels": refused} if refused else {"ready": True})
        error = "; ".join(problems) if known else "not ready; with an API key, the answer has the reasons"
        return Json({"ready": False, "error": error}, 503, {"retry-after": "1"})


def _labels(model: PublishedModel) -> JobLabels:
    return model.name, model.version, model.job
