"""Routes that are answered without the layers of Starlette, which take a third of the time of a small request."""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from cluster_serving.frontend.errors import unexpected
from cluster_serving.frontend.server.http import cycle, query
from cluster_serving.frontend.server.http.call import OTHER
from cluster_serving.frontend.server.http.responses import Json, Written, error_response
from cluster_serving.protocol.errors import ServingError

log = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]

_PLAIN = (Written, Json, Response)
"""Classes of responses that are whole from the start."""

_MOST_PATHS = 1024
"""Paths whose routes are remembered. Clients choose the paths, but only those of known routes count."""


class DirectRoutes:
    """The routes of an application that take POST, such as those of predictions.

    All other requests are for Starlette, whose answers to these would be the same.

    Args:
        apis: Routes by the label of their API in the metrics.
    """

    def __init__(self, apis: Mapping[str, Sequence[Route]]) -> None:
        self._apis = apis
        self._found: dict[str, tuple[Endpoint, Mapping[str, Any]]] = {}

    def find(self, scope: Scope) -> Endpoint | None:
        """Return the function that answers a request, and set the parameters of its path; None if there is none."""
        if scope["method"] != "POST":
            return None
        path = scope["path"]
        found = self._found.get(path) or self._search(scope, path)
        if found is None:
            return None
        endpoint, parameters = found
        scope["path_params"] = parameters
        return endpoint

    def api_of(self, scope: Scope) -> str:
        """Return the API of a request, answered or not; `OTHER` for that of none."""
        for name, routes in self._apis.items():
            if any(route.matches(scope)[0] is Match.FULL for route in routes):
                return name
        return OTHER

    def check_query(self, scope: Scope) -> None:
        """Refuse a request whose query its route does not take; see `query.check`."""
        for route in chain(*self._apis.values()):
            if route.matches(scope)[0] is Match.FULL:
                query.check(scope["query_string"], route)
                return

    def methods(self, scope: Scope) -> str:
        """Return the methods of the path of a request, as the header Allow has them."""
        return _methods(route for route in chain(*self._apis.values()) if route.matches(scope)[0] is not Match.NONE)

    def all_methods(self) -> str:
        """Return the methods of all paths, as the header Allow has them."""
        return _methods(chain(*self._apis.values()))

    def _search(self, scope: Scope, path: str) -> tuple[Endpoint, Mapping[str, Any]] | None:
        for route in chain(*self._apis.values()):
            match, child = route.matches(scope)
            if match is Match.FULL:
                function = getattr(route.endpoint, "func", route.endpoint)
                if not inspect.iscoroutinefunction(function):
                    return None
                found = route.endpoint, child["path_params"]
                if len(self._found) < _MOST_PATHS:
                    self._found[path] = found
                return found
        return None


def _methods(routes: Iterable[Route]) -> str:
    return ", ".join(sorted({*chain.from_iterable(route.methods or () for route in routes)}))


async def answer(endpoint: Endpoint, request: Request) -> tuple[Response, str | None]:
    """Answer a request; return the response, and the version of the model if an error tells it."""
    try:
        return await endpoint(request), None
    except ServingError as error:
        return error_response(error, request.scope["path"]), error.version
    except ClientDisconnect:
        # The response reaches no client; 499 is the status that proxies log.
        return Response(status_code=499), None
    except Exception as error:
        log.exception("%s", request.scope["path"])
        return error_response(unexpected(error), request.scope["path"]), None


async def respond(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a response: at once if that is possible."""
    plain = type(response) in _PLAIN and response.background is None
    if not plain or not cycle.write(send, response.status_code, response.raw_headers, bytes(response.body)):
        await response(scope, receive, send)
