"""Listening for gRPC: the services of v2 and of the original on one port."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from cluster_serving.client.errors import ServingError
from cluster_serving.frontend import kserve_grpc, original_grpc, tls
from cluster_serving.frontend.front_end import FrontEnd
from cluster_serving.frontend.kserve_grpc import InferenceService
from cluster_serving.frontend.original_grpc import OriginalService
from cluster_serving.frontend.proto import inference, original

log = logging.getLogger(__name__)

Method = Callable[[Any, float | None], Awaitable[Any]]
StreamMethod = Callable[[AsyncIterator[Any], float | None], AsyncIterator[Any]]

_OPEN = frozenset({"ServerLive", "ServerReady"})
"""Methods that need no key: whether a server is alive is no secret, and probes have none."""


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

    async def stop(self, grace: float) -> None:
        """Take no more calls, and wait for those that are there.

        Args:
            grace: Seconds until they are cancelled.
        """
        if self._server is not None:
            await self._server.stop(grace)

    def _inference(self) -> Any:
        service = InferenceService(self._front.kserve)
        methods = {
            "ServerLive": service.server_live,
            "ServerReady": service.server_ready,
            "ModelReady": service.model_ready,
            "ServerMetadata": service.server_metadata,
            "ModelMetadata": service.model_metadata,
            "ModelConfig": service.model_config,
            "ModelStatistics": service.model_statistics,
            "RepositoryIndex": service.repository_index,
            "ModelInfer": service.model_infer,
        }
        handlers = {
            name: self._unary(name, method, getattr(inference, f"{name}Request")) for name, method in methods.items()
        }
        handlers["ModelStreamInfer"] = self._stream(service.model_stream_infer, inference.ModelInferRequest)
        return grpc.method_handlers_generic_handler(kserve_grpc.NAME, handlers)

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

    def _unary(self, name: str, method: Method, message_type: Any) -> Any:
        async def answer(message: Any, context: Any) -> Any:
            try:
                if name not in _OPEN:
                    await self._admit(context)
                return await method(message, context.time_remaining())
            except ServingError as error:
                await _abort(context, error)
            except Exception as error:
                log.exception("gRPC method %s", name)
                await _abort(context, ServingError(f"unexpected {type(error).__name__}"))

        return grpc.unary_unary_rpc_method_handler(answer, message_type.FromString, _serialized)

    def _stream(self, method: StreamMethod, message_type: Any) -> Any:
        async def answer(messages: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            try:
                await self._admit(context)
                async for reply in method(messages, context.time_remaining()):
                    yield reply
            except ServingError as error:
                await _abort(context, error)

        return grpc.stream_stream_rpc_method_handler(answer, message_type.FromString, _serialized)

    async def _admit(self, context: Any) -> None:
        """Raise if the caller may not ask."""


def _serialized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


async def _abort(context: Any, error: ServingError) -> None:
    await context.abort(getattr(grpc.StatusCode, error.grpc_status), str(error))
