"""Listening for gRPC: the services of v2 and of the original on one port."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from cluster_serving.frontend.api.original import grpc as original_grpc
from cluster_serving.frontend.api.original.grpc import OriginalService
from cluster_serving.frontend.api.v2 import grpc as v2_grpc
from cluster_serving.frontend.api.v2.grpc import InferenceService
from cluster_serving.frontend.api.v2.messages import message_of
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.proto import inference, original
from cluster_serving.frontend.server import tls
from cluster_serving.frontend.server.call import Call
from cluster_serving.protocol.errors import ServingError

log = logging.getLogger(__name__)

Method = Callable[[Any, Call], Awaitable[Any]]
StreamMethod = Callable[[AsyncIterator[bytes], Call], AsyncIterator[Any]]

_OPEN = frozenset({"ServerLive", "ServerReady"})
"""Methods that need no key: whether a server is alive is no secret, and probes have none."""

_MAX_STATUS_BYTES = 2000

_IDENTITY = 1
"""The set of compression algorithms with no compression alone."""

_LIMITED = frozenset({"ModelInfer", "ModelStreamInfer", "Predict"})
"""Methods that tokenBucketEnabled limits; a stream counts once."""


class ListenError(Exception):
    """A port cannot be listened on."""


class GrpcServer:
    """Serves gRPC in the event loop that starts it, on the port of the options; with TLS if they enable HTTPS.

    A call's deadline becomes the time that its request may take, and a cancelled call cancels its request.

    Args:
        front: What answers.

    Attributes:
        url: Where it listens; empty until then.

    Raises:
        TlsError: The certificate cannot be used.
    """

    def __init__(self, front: FrontEnd) -> None:
        self.url = ""
        self._front = front
        self._options = front.options
        self._credentials: Any = None
        if self._options.https_enabled:
            self._credentials = grpc.ssl_server_credentials([tls.server_pem(self._options)])
        self._server: Any = None

    async def start(self) -> None:
        """Listen.

        Raises:
            ListenError: The port is taken, or the address not of this machine.
        """
        options = self._options
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", options.max_body_bytes),
                ("grpc.max_send_message_length", -1),
                # Otherwise a second server on the port would take a part of the calls.
                ("grpc.so_reuseport", 0),
                # gRPC expands a compressed message before it looks how large that is: 64 MiB become 64 GiB.
                *(() if options.grpc_compression else (("grpc.compression_enabled_algorithms_bitset", _IDENTITY),)),
            ],
            maximum_concurrent_rpcs=options.max_connections,
        )
        self._server.add_generic_rpc_handlers((self._inference(), self._original()))
        host = f"[{options.interface}]" if ":" in options.interface else options.interface
        try:
            if self._credentials is None:
                port = self._server.add_insecure_port(f"{host}:{options.grpc_port}")
            else:
                port = self._server.add_secure_port(f"{host}:{options.grpc_port}", self._credentials)
        except RuntimeError:
            await self._server.stop(None)
            raise ListenError(
                f"cannot listen on {options.interface} port {options.grpc_port} for gRPC (grpcPort)"
            ) from None
        await self._server.start()
        self.url = f"{'grpc' if self._credentials is None else 'grpcs'}://{host}:{port}"

    def begin_stop(self, grace: float) -> None:
        """Take no more calls; the front end is not closed before those that are there have ended.

        Args:
            grace: Seconds until they are cancelled.
        """
        if self._server is not None:
            stopping = asyncio.create_task(self._server.stop(grace))
            self._front.on_close.insert(0, lambda: stopping)

    def _inference(self) -> Any:
        service = InferenceService(self._front.kserve, self._front.offload)
        methods = {
            "ServerLive": service.server_live,
            "ServerReady": service.server_ready,
            "ModelReady": service.model_ready,
            "ServerMetadata": service.server_metadata,
            "ModelMetadata": service.model_metadata,
            "ModelConfig": service.model_config,
            "ModelStatistics": service.model_statistics,
            "RepositoryIndex": service.repository_index,
        }
        handlers = {
            name: self._unary(name, method, getattr(inference, f"{name}Request")) for name, method in methods.items()
        }
        handlers["ModelInfer"] = self._unary("ModelInfer", service.model_infer)
        handlers["ModelStreamInfer"] = self._stream("ModelStreamInfer", service.model_stream_infer)
        return grpc.method_handlers_generic_handler(v2_grpc.NAME, handlers)

    def _original(self) -> Any:
        service = OriginalService(self._front)
        handlers = {
            "Ping": self._unary("Ping", service.ping, original.Empty),
            "GetMetrics": self._unary("GetMetrics", service.metrics, original.Empty),
            "GetAllModels": self._unary("GetAllModels", service.models, original.Empty),
            "GetModelsWithName": self._unary("GetModelsWithName", service.models, original.GetModelsWithNameReq),
            "GetModelsWithNameAndVersion": self._unary(
                "GetModelsWithNameAndVersion", service.models, original.GetModelsWithNameAndVersionReq
            ),
            "Predict": self._unary("Predict", service.predict, original.PredictReq),
        }
        return grpc.method_handlers_generic_handler(original_grpc.NAME, handlers)

    # gRPC does not read the messages: that costs time and memory, and comes after the question who may ask.

    def _unary(self, name: str, method: Method, message_type: Any = None) -> Any:
        async def answer(text: bytes, context: Any) -> Any:
            async with self._around(name, context) as call:
                return await method(message_of(message_type, text) if message_type else text, call)

        return grpc.unary_unary_rpc_method_handler(answer, None, _serialized)

    def _stream(self, name: str, method: StreamMethod) -> Any:
        async def answer(messages: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
            async with self._around(name, context) as call:
                async for reply in method(messages, call):
                    yield reply

        return grpc.stream_stream_rpc_method_handler(answer, None, _serialized)

    @asynccontextmanager
    async def _around(self, name: str, context: Any) -> AsyncIterator[Call]:
        """Admit a call, end it with the status of its error, and count it."""
        began = time.perf_counter()
        call = Call(context.time_remaining())
        status = 499
        try:
            await self._admit(name, context)
            yield call
            status = 200
        except ServingError as error:
            status = error.http_status
            await _abort(context, error)
        except Exception as error:
            status = ServingError.http_status
            log.exception("gRPC method %s", name)
            await _abort(context, ServingError(f"unexpected {type(error).__name__}"))
        finally:
            self._front.metrics.answered("grpc", call.model, status, time.perf_counter() - began)

    async def _admit(self, name: str, context: Any) -> None:
        """Check API key and rate, as for HTTP; raises if the caller may not ask, or not now."""
        if name in _OPEN:
            return
        client = ""
        if self._front.keys is not None:
            metadata = dict(context.invocation_metadata() or ())
            bearer = metadata.get("authorization", "")
            key = bearer[7:].strip() if bearer[:7].lower() == "bearer " else metadata.get("x-api-key", "")
            client = self._front.keys.owner(key)
        if self._options.token_bucket_enabled and name in _LIMITED and (wait := self._front.bucket(client).take()):
            await asyncio.sleep(wait)


def _serialized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


async def _abort(context: Any, error: ServingError) -> None:
    # It travels as metadata, percent-encoded; of more than 8 KiB, clients would see neither message nor code.
    text = error.message.encode()[:_MAX_STATUS_BYTES].decode("utf8", "ignore")
    await context.abort(getattr(grpc.StatusCode, error.grpc_status), text)
