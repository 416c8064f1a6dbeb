"""The APIs of a front end: an API is added here, and nowhere else."""

from collections.abc import Callable

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
from cluster_serving.frontend.server.grpc.server import Service
from cluster_serving.frontend.server.http.call import OTHER

OPEN_PATHS = ("/", "/openapi.json", "/health/", "/v2/health/", *page.PATHS)
"""Paths that need no API key: pages without data, and health, as probes have no key."""

WRAPPERS: tuple[Callable[[ASGIApp], ASGIApp], ...] = (FormatPrefix,)
"""What APIs put around the application, the innermost first."""


class Apis:
    """The routes and the gRPC services of all APIs."""

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

    def services(self) -> list[Service]:
        """Return the gRPC services."""
        services = [v2_grpc.service(self._front, self._v2), original_grpc.service(self._front)]
        return [*services, *standard.services(self._v2, services)]
