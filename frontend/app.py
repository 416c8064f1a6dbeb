"""The application: the routes of all protocols, and what is around them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from cluster_serving.frontend.api import docs, monitoring, page
from cluster_serving.frontend.api.original import http as original_http
from cluster_serving.frontend.api.requests import routes as requests
from cluster_serving.frontend.api.v2 import http as v2_http
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.errors import MethodNotAllowed, PathNotFound
from cluster_serving.frontend.server.middleware import Guard
from cluster_serving.frontend.server.responses import Json, error_response
from cluster_serving.protocol.errors import ServingError


def make(front: FrontEnd) -> ASGIApp:
    """Make the application of a front end; it closes that when it ends."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await front.close()

    app = Starlette(
        # The first that fits is taken, so what is asked most comes first.
        routes=[
            *original_http.routes(front),
            *v2_http.routes(front),
            *requests.routes(front),
            *monitoring.routes(front),
            *docs.routes(front),
            *page.routes(front),
        ],
        lifespan=lifespan,
        exception_handlers={
            ServingError: _serving_error,
            HTTPException: _http_error,
            ClientDisconnect: _gone,
            Exception: _unexpected,
        },
    )
    guarded = Guard(app, front)
    if not front.options.cors_origins:
        return guarded
    # Around the guard: a browser asks without a key whether it may ask with one.
    return CORSMiddleware(
        guarded,
        allow_origins=front.options.cors_origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=["X-Request-Id", "Retry-After"],
    )


async def _serving_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ServingError)  # noqa: S101 - for the type checker
    return error_response(error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - for the type checker
    path = request.url.path[:200]
    if error.status_code == 405:
        answer = error_response(MethodNotAllowed(f"{request.method} is not for {path}"))
    elif error.status_code == 404:
        answer = error_response(PathNotFound(f"there is nothing at {path}"))
    else:
        answer = Json({"error": error.detail, "code": ServingError.code}, error.status_code)
    answer.headers.update(error.headers or {})
    return answer


async def _gone(_: Request, error: Exception) -> Response:
    # Nobody reads it; 499 is what proxies write into their logs.
    return Response(status_code=499)


async def _unexpected(_: Request, error: Exception) -> Response:
    # The server has the traceback in its log; it is of no use to a client.
    return Json({"error": f"unexpected {type(error).__name__}", "code": ServingError.code}, 500)
