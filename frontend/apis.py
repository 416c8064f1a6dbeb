"""The APIs of a front end: an API is added here, and nowhere else."""

from collections.abc import Callable, Coroutine
from typing import Any

from starlette.routing import Route
from starlette.types import ASGIApp

from cluster_serving.frontend.api import monitoring, page, standard, v1
from cluster_serving.frontend.api.model_docs import document as model_docs
from cluster_serving.frontend.api.model_docs import general
from cluster_serving.frontend.api.openai import routes as openai
from cluster_serving.frontend.api.original import grpc as original_grpc
from cluster_serving.frontend.api.original import http as original_http
from cluster_serving.frontend.api.original.prefix import FormatPrefix
from cluster_serving.frontend.api.requests import routes as requests
from cluster_serving.frontend.api.v2 import grpc as v2_grpc
from cluster_serving.frontend.api.v2 import http as v2_http
from cluster_serving.frontend.api.v2.service import V2Service
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.models.history import History
from cluster_serving.frontend.server.access_log import AccessLog
from cluster_serving.frontend.server.grpc.server import GrpcServer
from cluster_serving.frontend.server.http.call import OTHER

OPEN_PATHS = ("/", "/openapi.json", "/health", "/health/", "/v2/health/", *page.PATHS)
"""Paths that need no API key: pages without data, and health, as probes have no key."""

WRAPPERS: tuple[Callable[[ASGIApp], ASGIApp], ...] = (FormatPrefix,)
"""What APIs put around the application, the innermost first."""


class Apis:
    """The routes and the gRPC services of all APIs, and what they do in the background."""

    def __init__(self, front: FrontEnd) -> None:
        self._front = front
        self._v2 = V2Service(front)

    def routes(self) -> dict[str, list[Route]]:
        """Return the routes by their labels in the metrics; the most frequent come first."""
        front = self._front
        return {
            "original": original_http.routes(front),
            "v2": v2_http.routes(front, self._v2),
            "kserve_v1": v1.routes(front, self._v2),
            "v1": requests.routes(front),
            "openai": openai.routes(front),
            OTHER: [*monitoring.routes(front), *general.routes(front), *model_docs.routes(front), *page.routes(front)],
        }

    def grpc_server(self, log: AccessLog) -> GrpcServer | None:
        """Return the server of the gRPC services; None if the options have no port for it."""
        front = self._front
        if not front.options.grpc_enabled:
            return None
        services = [v2_grpc.service(front, self._v2), original_grpc.service(front)]
        services += standard.services(self._v2, services)
        return GrpcServer(front.options, services, front.admission, front.metrics, log)

    def background(self) -> list[Coroutine[Any, Any, None]]:
        """Return what runs beside the requests, until the front end ends."""
        return [History(self._front.registry, self._front.dispatch).run()]
