"""The servers of a front end: the routes and services of all APIs (`frontend.apis`), and the middleware around them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from cluster_serving.frontend import apis
from cluster_serving.frontend.apis import Apis
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.errors import MethodNotAllowed, PathNotFound, unexpected
from cluster_serving.frontend.server import traces
from cluster_serving.frontend.server.access_log import AccessLog
from cluster_serving.frontend.server.admission.admission import acquire_for_worker, remote_acquire
from cluster_serving.frontend.server.fast.direct import DirectRoutes
from cluster_serving.frontend.server.http.call import call_of
from cluster_serving.frontend.server.http.responses import error_response
from cluster_serving.frontend.server.metrics import Part
from cluster_serving.frontend.server.middleware import AccessMiddleware
from cluster_serving.frontend.server.processes.first_process import HttpServer
from cluster_serving.frontend.server.processes.hot_restart import HotRestart
from cluster_serving.frontend.server.processes.worker import WorkerServer
from cluster_serving.frontend.server.processes.workers import Workers
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.redis.connection import translated
from cluster_serving.protocol.redis.reconnecting import persistent
from cluster_serving.protocol.traces.tracing import tracer

if TYPE_CHECKING:
    from cluster_serving.frontend.server.grpc.server import GrpcServer


def make(
    front: FrontEnd,
    ready: Callable[[list[str]], None],
    hot_restart: HotRestart | None = None,
    workers: Workers | None = None,
) -> HttpServer:
    """Make the server of the first process of a front end, with the routes and the gRPC services of all APIs.

    The server calls `ready` with its URLs when it listens, and closes the front end when it ends.
    """

    async def reach() -> None:
        # Models are read with the first request: those of a read at the start may be a second old by then.
        db: Any = front.dispatch.dispatcher().db
        with persistent(0.0), translated(db):
            await db.time()

    options, known = front.options, Apis(front)
    log = AccessLog(options.access_log)
    grpc = known.grpc_server(log)
    if workers is not None:
        _share(front, workers)
    return HttpServer(
        _application(front, known, log, grpc),
        options,
        ready=ready,
        prepare=front.registry.latest,
        reach=reach,
        stopping=front.health.begin_stop,
        grpc=grpc,
        hot_restart=hot_restart,
        workers=workers,
    )


def make_worker(front: FrontEnd, sockets: tuple[socket.socket, socket.socket]) -> WorkerServer:
    """Make the server of a further process of a front end, with the routes of all APIs; see `WorkerServer`."""

    async def own_metrics(_: object) -> Part:
        return await front.own_metrics()

    app = _application(front, Apis(front), AccessLog(front.options.access_log), None)
    server = WorkerServer(app, front.options, front.health.begin_stop, sockets, {"metrics": own_metrics})
    front.total_metrics = partial(server.ask, "total metrics")
    front.admission.acquire_token = remote_acquire(partial(server.ask, "token"))
    return server


def _share(front: FrontEnd, workers: Workers) -> None:
    """Answer the questions of workers: for the metrics of all processes, and for turns, which have one limit."""

    async def total_metrics() -> Part:
        return await workers.total_metrics(await front.own_metrics())

    front.total_metrics = total_metrics
    workers.answers = {
        "total metrics": lambda _: total_metrics(),
        "token": partial(acquire_for_worker, front.admission),
    }


def _application(front: FrontEnd, known: Apis, log: AccessLog, grpc: GrpcServer | None) -> ASGIApp:
    """Return the application; it closes the front end when its lifespan ends, after the gRPC server has stopped."""
    options = front.options

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        for start in front.on_start:
            start()
        tasks = [asyncio.create_task(work) for work in known.background()]
        yield
        for task in tasks:
            task.cancel()
        if grpc is not None:
            await grpc.stopped()
        await front.close()
        if found := tracer(traces.SERVICE):
            found.flush()

    routes = known.routes()
    direct = DirectRoutes(routes)
    served = Starlette(
        routes=[*chain(*routes.values())],
        lifespan=lifespan,
        exception_handlers={
            ServingError: _serving_error,
            HTTPException: partial(_http_error, direct),
            ClientDisconnect: _disconnected,
            Exception: _unexpected_error,
        },
    )
    served.router.redirect_slashes = False
    app: ASGIApp = AccessMiddleware(served, direct, front.admission, front.metrics, apis.OPEN_PATHS, log)
    for wrapper in apis.WRAPPERS:
        app = wrapper(app)
    if options.cors_origins:
        # Outermost: a browser sends no key with the question whether a page may send requests.
        app = CORSMiddleware(
            app,
            allow_origins=options.cors_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id", "X-Model-Version", "Retry-After"],
        )
    return app


async def _serving_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServingError)  # noqa: S101 - for the type checker
    if error.version:
        call_of(request).version = error.version
    return error_response(error, request.scope["path"])


async def _http_error(routes: DirectRoutes, request: Request, error: Exception) -> Response:
    """Return the answer to a request for which Starlette has no route, as it says by 404 or 405.

    A path with a surplus slash at its end is redirected.
    """
    path, sent = request.scope["path"], request.scope["raw_path"]
    if path == "*":
        # The method is OPTIONS, and the question is for the server as a whole (RFC 9110, 9.3.7).
        return Response(status_code=204, headers={"allow": routes.all_methods()})
    methods = routes.methods(request.scope)
    if not methods and sent.endswith(b"/") and routes.methods({**request.scope, "path": path[:-1]}):
        # A relative address: behind a proxy, the client knows another scheme, port or path, such as a form's.
        name, query = sent[:-1].rpartition(b"/")[2], request.scope["query_string"]
        location = b"../%b?%b" % (name, query) if query else b"../%b" % name
        return Response(status_code=307, headers={"location": location.decode("latin1")})
    if not methods:
        return error_response(PathNotFound(f"there is no resource at {path[:200]}; /docs lists the API"), path)
    # Starlette names the methods of the first route of the path alone.
    told = f"the method {request.method[:32]} is not allowed at {path[:200]}, but {methods}"
    return error_response(MethodNotAllowed(told, methods), path)


async def _disconnected(_: Request, error: Exception) -> Response:
    # The response reaches no client; 499 is the status that proxies log.
    return Response(status_code=499)


async def _unexpected_error(request: Request, error: Exception) -> Response:
    return error_response(unexpected(error), request.scope["path"])
