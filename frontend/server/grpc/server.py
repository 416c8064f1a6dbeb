"""The gRPC server: the services of all APIs on one port."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from cluster_serving.frontend.caller import asked_priority, asked_seconds, set_caller
from cluster_serving.frontend.caller import request_id as current_id
from cluster_serving.frontend.errors import BodyTimeout, Overloaded, StartError, unexpected
from cluster_serving.frontend.options import HttpOptions
from cluster_serving.frontend.proto import parse
from cluster_serving.frontend.server import failures, sockets, tls, traces
from cluster_serving.frontend.server.access_log import AccessLog
from cluster_serving.frontend.server.admission.admission import Admission
from cluster_serving.frontend.server.admission.body_memory import Share
from cluster_serving.frontend.server.grpc import ports, unread
from cluster_serving.frontend.server.grpc.call import GrpcCall
from cluster_serving.frontend.server.metrics import Metrics
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.traces.tracing import tracer

log = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_STATUS_BYTES = 2000
_CANCEL_TIMEOUT = 2.0
_SLOW = 1.0
"""Seconds after which the reception of a message is slow."""

_MOST_ANONYMOUS = 64
"""Most streams at a time of callers without an API key, where there are keys; or a quarter of all calls."""

_VERSION = "x-model-version"
"""Metadata that follows an answer: version of the model that gave it."""

_LEAST_PING_MS = 1000
"""Milliseconds between two pings of a client; one that pings more often is disconnected."""

_IDENTITY = 1
"""The set of compression algorithms that holds no compression alone."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a gRPC service.

    Attributes:
        answer: Coroutine function of a message and its call, which returns the reply; of a stream, an asynchronous
            generator function of the bytes of the messages and the call.
        message: Type of the message; None if `answer` takes the message as it was sent.
        needs_key: False for the question whether a server is alive, which is no secret: probes have no key.
        limited: True if calls count for the rate limit; a stream counts once.
        streams: True for a stream in both directions, or of replies to one message.
        goes_on: Returns True for a reply of a stream that is not the last one to its message.
    """

    answer: Callable[[Any, GrpcCall], Any]
    message: Any = None
    needs_key: bool = True
    limited: bool = False
    streams: bool = False
    goes_on: Callable[[Any], bool] = lambda reply: False


@dataclass(frozen=True, slots=True)
class Service:
    """A gRPC service: its full name, and its methods by name."""

    name: str
    methods: Mapping[str, Method]


class GrpcServer:
    """Serves gRPC in the event loop that starts it, with TLS if the options enable HTTPS.

    The deadline of a call limits the time of its request, and a cancelled call cancels its request.

    Attributes:
        url: Address of the server; empty until it listens.
        port: Port of the server; 0 until it listens.
    """

    def __init__(
        self,
        options: HttpOptions,
        services: Sequence[Service],
        admission: Admission,
        metrics: Metrics,
        access_log: AccessLog,
    ) -> None:
        self.url = ""
        self.port = 0
        self._options = options
        self._services = services
        self._admission = admission
        self._metrics = metrics
        self._access_log = access_log
        self._tracer = tracer(traces.SERVICE)
        self._credentials: Any = None
        if options.https_enabled:
            self._credentials = grpc.ssl_server_credentials([tls.server_pem(options)])
        self._server: Any = None
        self._stop: asyncio.Task[None] | None = None
        self._stop_timeout = 0.0
        self._unread: asyncio.Task[None] | None = None
        self._pending = unread.PendingAnswers()
        self._stopping = asyncio.Event()
        self._anonymous = 0
        self._most_anonymous = min(_MOST_ANONYMOUS, -(-options.max_connections // 4))

    async def start(self, beside: bool = False, earlier: int = 0) -> None:
        """Listen, or raise `StartError`.

        With `beside`, take the port over from a server that lets others share it; `earlier` is its port.
        """
        options = self._options
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", options.max_body_bytes),
                ("grpc.max_send_message_length", -1),
                # Otherwise any second server on the port would take a part of the calls.
                ("grpc.so_reuseport", int(beside)),
                *self._ages(),
                # By default, the third ping within 5 minutes ends an idle connection (too_many_pings): clients behind
                # a load balancer ping each 10 s, also between their calls.
                ("grpc.http2.min_ping_interval_without_data_ms", _LEAST_PING_MS),
                ("grpc.keepalive_permit_without_calls", 1),
                # gRPC expands a compressed message before it checks the size: 64 MiB become 64 GiB.
                *(() if options.grpc_compression else (("grpc.compression_enabled_algorithms_bitset", _IDENTITY),)),
            ],
            maximum_concurrent_rpcs=options.max_connections,
        )
        self._server.add_generic_rpc_handlers(tuple(map(self._handler, self._services)))
        # A second front end of this machine may find the default port taken.
        candidates = [options.grpc_port] if options.has_own_grpc_port else [earlier or options.grpc_port, 0]
        for wanted in candidates:
            # gRPC would write lines of its own about a port that is taken.
            if not ports.can_listen(options.interface, wanted, beside):
                continue
            with suppress(RuntimeError):
                port = self._add_port(f"{options.url_host}:{wanted}")
                break
        else:
            await self._server.stop(None)
            raise StartError(f"cannot listen on {options.interface} port {options.grpc_port} for gRPC (grpcPort)")
        await self._server.start()
        if beside:
            for sock in sockets.of_port(port):
                with sock:
                    ports.take_connections(sock)
        self.port = port
        self._unread = asyncio.create_task(unread.hang_up_on_port(port, options.write_timeout, self._pending))
        self.url = f"{'grpc' if self._credentials is None else 'grpcs'}://{options.url_host}:{port}"

    def _add_port(self, address: str) -> int:
        if self._credentials is None:
            return int(self._server.add_insecure_port(address))
        return int(self._server.add_secure_port(address, self._credentials))

    @property
    def has_connections(self) -> bool:
        """True if a client is connected."""
        return ports.count_connections(self.port) > 0

    def begin_stop(self, timeout: float) -> None:
        """Take no more calls; those in progress are cancelled after a number of seconds.

        A call fails if it arrives before its client knows that the server stops, so connections should have ended.
        """
        if self._server is not None:
            self._stopping.set()
            self._stop = asyncio.create_task(self._server.stop(timeout))
            self._stop_timeout = timeout

    async def stopped(self) -> None:
        """Wait for the end of all calls after `begin_stop`."""
        if self._stop is not None:
            # gRPC waits without a limit for calls that it has cancelled.
            await asyncio.wait({self._stop}, timeout=self._stop_timeout + _CANCEL_TIMEOUT)
        if self._unread is not None:
            self._unread.cancel()

    def _ages(self) -> list[tuple[str, int]]:
        # A server that stops fails the calls that arrive before their client knows it; one that asks for a new
        # connection fails none (measured with gRPC 1.65).
        age = self._options.grpc_connection_age
        return [("grpc.max_connection_age_ms", int(age * 1000))] if age else []

    def _handler(self, service: Service) -> Any:
        handlers = {
            name: (self._stream if method.streams else self._unary)(f"/{service.name}/{name}", method)
            for name, method in service.methods.items()
        }
        return grpc.method_handlers_generic_handler(service.name, handlers)

    # gRPC itself does not parse the messages: parsing costs time and memory, and comes after admission.

    def _unary(self, path: str, method: Method) -> Any:
        # As a stream of one message: its bytes are received only once the call is admitted.
        async def answer(messages: AsyncIterator[bytes], context: Any) -> Any:
            async with self._around(path, method, context) as call, _Reception(call.body, self._options) as reception:
                text = await anext(messages, b"")
                reception.end(len(text))
                answer = await method.answer(parse(method.message, text) if method.message else text, call)
            self._pending.begin(context)
            context.add_done_callback(self._pending.end)
            return answer

        return grpc.stream_unary_rpc_method_handler(answer, None, _serialized)

    def _stream(self, path: str, method: Method) -> Any:
        async def answer(messages: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
            async with self._around(path, method, context) as call:
                stream = _MeteredStream(messages, call.body)
                try:
                    async for reply in method.answer(stream.messages(), call):
                        self._pending.begin(context)
                        yield reply
                        self._pending.end(context)
                        if not method.goes_on(reply):
                            stream.answered()
                finally:
                    self._pending.end(context)

        return grpc.stream_stream_rpc_method_handler(answer, None, _serialized)

    @contextmanager
    def _stream_slot(self, is_anonymous: bool) -> Iterator[None]:
        """Hold one of the few slots for streams of callers without an API key, which could take all of them."""
        if is_anonymous and self._anonymous >= self._most_anonymous:
            raise Overloaded("there are too many streams without an API key; ask again later, or with a key")
        self._anonymous += is_anonymous
        try:
            yield
        finally:
            self._anonymous -= is_anonymous

    @asynccontextmanager
    async def _around(self, path: str, method: Method, context: Any) -> AsyncIterator[GrpcCall]:
        """Admit a call, end it with the status of its error, and count it."""
        began = time.perf_counter()
        metadata: dict[str, Any] = {}
        for name, value in context.invocation_metadata() or ():
            # Several texts of one name are a list, as headers are over HTTP.
            metadata[name] = f"{metadata[name]}, {value}" if name in metadata else value
        call = GrpcCall(context.time_remaining(), self._stopping, self._admission.bodies.share())
        request_id = self._access_log.request_id(metadata.get("x-request-id", "").encode())
        current_id.set(request_id.decode())
        span = None
        if self._tracer and method.limited:
            span = traces.begin(self._tracer, metadata.get("traceparent", ""))
        status, failed = 499, ""
        client = ""
        try:
            client = self._admission.client(_key(metadata), method.needs_key)
            # A peer is such as `ipv4:10.0.0.7:51312`.
            set_caller(client, context.peer().rpartition(":")[0])
            if method.limited:
                await self._admission.wait_for_token(client)
            wait = asked_seconds("metadata x-timeout-ms", metadata.get("x-timeout-ms"))
            call.timeout = min((limit for limit in (call.timeout, wait) if limit is not None), default=None)
            call.priority = asked_priority("metadata x-priority", metadata.get("x-priority"))
            with self._stream_slot(is_anonymous=method.streams and self._admission.has_keys and not client):
                yield call
            status = 200
            context.set_trailing_metadata(_trailer(request_id, call.version))
        except ServingError as error:
            status, failed = error.http_status, error.grpc_status
            call.version = error.version or call.version
            failures.note(error)
            await _abort(context, error, request_id)
        except Exception as error:
            status, failed = ServingError.http_status, ServingError.grpc_status
            log.exception("gRPC method %s", path)
            await _abort(context, unexpected(error), request_id)
        finally:
            seconds = time.perf_counter() - began
            call.body.release()
            self._metrics.answered("grpc", call.model, status, seconds, call.version)
            if span:
                span.end_grpc(path, failed if status >= 500 else "")
            if self._access_log.enabled:
                self._access_log.write("GRPC", path, status, seconds, request_id, client)


def _key(metadata: Mapping[str, Any]) -> str:
    bearer = metadata.get("authorization", "")
    key: str = bearer[7:].strip() if bearer[:7].lower() == "bearer " else metadata.get("x-api-key", "")
    return key


class _Reception:
    """The reception of a message, whose size is not known before it has arrived.

    One that takes long counts as the largest: many slow senders would take any amount of memory.
    """

    def __init__(self, body: Share, options: HttpOptions) -> None:
        self._body = body
        self._options = options
        self._task = asyncio.current_task()
        self._error: ServingError | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> _Reception:
        self._timer = asyncio.get_running_loop().call_later(_SLOW, self._is_slow)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._stop_timer()
        if self._error is not None and isinstance(error, asyncio.CancelledError):
            # Before 3.11, Python does not count cancellations.
            if sys.version_info >= (3, 11) and self._task is not None:
                self._task.uncancel()
            raise self._error from None

    def end(self, size: int) -> None:
        """Hold a message of this size, which has arrived."""
        self._stop_timer()
        self._body.release()
        self._body.take(size)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_slow(self) -> None:
        try:
            self._body.take(self._options.max_body_bytes)
        except ServingError as error:
            self._fail(error)
        else:
            limit = self._options.body_timeout
            late = BodyTimeout(f"the message did not arrive within {limit:g} s (bodyTimeout)")
            self._timer = asyncio.get_running_loop().call_later(limit - _SLOW, self._fail, late)

    def _fail(self, error: ServingError) -> None:
        self._error = error
        if self._task is not None:
            self._task.cancel()


class _MeteredStream:
    """The messages of a stream: the next one is taken when the messages without a reply leave memory for it."""

    def __init__(self, messages: AsyncIterator[bytes], body: Share) -> None:
        self._messages = messages
        self._body = body
        self._sizes: deque[int] = deque()
        self._freed = asyncio.Event()

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield the messages."""
        async for text in self._messages:
            while self._sizes and not self._body.fits(len(text)):
                self._freed.clear()
                await self._freed.wait()
            self._body.take(len(text))
            self._sizes.append(len(text))
            yield text

    def answered(self) -> None:
        """Give back the memory of the oldest message."""
        if self._sizes:
            self._body.give(self._sizes.popleft())
            self._freed.set()


def _serialized(message: Any) -> bytes:
    data: bytes = message if isinstance(message, bytes) else message.SerializeToString()
    return data


async def _abort(context: Any, error: ServingError, request_id: bytes) -> None:
    # The text travels as metadata, percent-encoded; from 8 KiB on, clients would get neither message nor code.
    text = error.message.encode()[:_MAX_STATUS_BYTES].decode("utf8", "ignore")
    await context.abort(getattr(grpc.StatusCode, error.grpc_status), text, _trailer(request_id, error.version))


def _trailer(request_id: bytes, version: str | None) -> tuple[tuple[str, str], ...]:
    marks = (("x-request-id", request_id.decode()),)
    return (*marks, (_VERSION, version)) if version else marks
