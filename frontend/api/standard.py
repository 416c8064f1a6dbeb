"""The gRPC services of gRPC itself: health checks (`grpc.health.v1.Health`) and server reflection."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from cluster_serving.frontend import proto
from cluster_serving.frontend.api.v2.service import V2Service
from cluster_serving.frontend.errors import ModelNotFound
from cluster_serving.frontend.server.grpc.call import GrpcCall
from cluster_serving.frontend.server.grpc.server import Method, Service
from cluster_serving.protocol.errors import ServingError

_Status: Any = health_pb2.HealthCheckResponse
_LOOK_EVERY = 1.0
"""Seconds between two looks of a watched health."""


def services(v2: V2Service, others: Sequence[Service]) -> list[Service]:
    """Return the services; none needs a key, as probes have no key, and reflection shows what `/docs` does.

    Health is that of the front end for an empty name, and for the names of the services `others`; any other name is
    that of a model.
    """
    names = [service.name for service in others]
    own = [health.SERVICE_NAME, reflection.SERVICE_NAME, _newer(reflection.SERVICE_NAME)]
    checks = _Health(v2, ["", *names, *own])
    mirror = Method(_Reflection([*names, *own]).info, needs_key=False, streams=True)
    return [
        Service(
            health.SERVICE_NAME,
            {
                "Check": Method(checks.check, health_pb2.HealthCheckRequest, needs_key=False),
                "Watch": Method(checks.watch, needs_key=False, streams=True),
            },
        ),
        *(Service(name, {"ServerReflectionInfo": mirror}) for name in own[1:]),
    ]


def _newer(text: str) -> str:
    return text.replace("v1alpha", "v1")


class _Health:
    def __init__(self, v2: V2Service, own: Sequence[str]) -> None:
        self._v2 = v2
        self._own = frozenset(own)

    async def check(self, message: Any, call: GrpcCall) -> Any:
        status = await self._status(message.service)
        if status == _Status.SERVICE_UNKNOWN:
            # The registry's own message names all models, which is for callers with a key.
            raise ModelNotFound(f"there is no service and no model {message.service[:64]!r}")
        return _Status(status=status)

    async def watch(self, messages: AsyncIterator[bytes], call: GrpcCall) -> AsyncIterator[Any]:
        """Answer with the status, and again whenever it changes, until the server stops."""
        message = proto.parse(health_pb2.HealthCheckRequest, await anext(messages, b""))
        last = None
        while not call.stopping.is_set():
            status = await self._status(message.service)
            if status != last:
                yield _Status(status=status)
            last = status
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(call.stopping.wait(), _LOOK_EVERY)
        yield _Status(status=_Status.NOT_SERVING)

    async def _status(self, name: str) -> Any:
        try:
            ready = await (self._v2.ready() if name in self._own else self._v2.model_ready(name, ""))
        except ModelNotFound:
            return _Status.SERVICE_UNKNOWN
        except ServingError:
            ready = False
        return _Status.SERVING if ready else _Status.NOT_SERVING


class _Reflection:
    """Reflection in both versions: the bytes of their messages are the same."""

    def __init__(self, names: Sequence[str]) -> None:
        # grpcio has the older one alone; only the names differ.
        file = descriptor_pb2.FileDescriptorProto.FromString(reflection_pb2.DESCRIPTOR.serialized_pb)
        descriptor_pool.Default().Add(text_format.Parse(_newer(text_format.MessageToString(file)), type(file)()))
        self._servicer = reflection.aio.ReflectionServicer(names)

    def info(self, messages: AsyncIterator[bytes], call: GrpcCall) -> AsyncIterator[Any]:
        requests = (proto.parse(reflection_pb2.ServerReflectionRequest, text) async for text in messages)
        replies: AsyncIterator[Any] = self._servicer.ServerReflectionInfo(requests, None)
        return replies
