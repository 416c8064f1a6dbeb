"""The Open Inference Protocol v2 over gRPC: the service `inference.GRPCInferenceService`."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from google.protobuf.json_format import ParseDict

from cluster_serving.client.answers.pieces import Restarted
from cluster_serving.frontend import proto
from cluster_serving.frontend.api.v2 import messages as v2_messages
from cluster_serving.frontend.api.v2 import metadata as v2_metadata
from cluster_serving.frontend.api.v2.batch import RecordsRequest
from cluster_serving.frontend.api.v2.codec import V2Codec
from cluster_serving.frontend.api.v2.request import InferRequest, InferResponse
from cluster_serving.frontend.api.v2.service import V2Service, named, unsupported
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.dataplane import DataPlane
from cluster_serving.frontend.errors import ModelNotFound, unexpected
from cluster_serving.frontend.models.registry import PublishedModel
from cluster_serving.frontend.proto import inference
from cluster_serving.frontend.server.grpc.call import GrpcCall
from cluster_serving.frontend.server.grpc.server import Method, Service
from cluster_serving.protocol.errors import InvalidInput, RequestRestarted, ServingError, VersionNotFound
from cluster_serving.protocol.hosting.control import LOAD, UNLOAD

log = logging.getLogger(__name__)

NAME = "inference.GRPCInferenceService"

_UNSUPPORTED = (
    *("TraceSetting", "LogSettings"),
    *(f"{kind}SharedMemory{call}" for kind in ("System", "Cuda") for call in ("Status", "Register", "Unregister")),
)

_ENDS = "triton_enable_empty_final_response"
"""Parameter of a request in a stream: true if an empty response is to follow its answer."""

_SMALL = 1 << 16
"""Bytes below which a message of any content is read at once."""

_FINAL = "triton_final_response"
"""Parameter of a reply in a stream: false if others to the same request follow."""

_MOST_AHEAD = 64
"""Most requests of one stream that are in flight at a time."""


def service(front: FrontEnd, v2: V2Service) -> Service:
    """Return the gRPC service."""
    api = _Methods(front, v2)
    return Service(
        NAME,
        {
            "ServerLive": Method(api.server_live, inference.ServerLiveRequest, needs_key=False),
            "ServerReady": Method(api.server_ready, inference.ServerReadyRequest, needs_key=False),
            "ModelReady": Method(api.model_ready, inference.ModelReadyRequest),
            "ServerMetadata": Method(api.server_metadata, inference.ServerMetadataRequest),
            "ModelMetadata": Method(api.model_metadata, inference.ModelMetadataRequest),
            "ModelConfig": Method(api.model_config, inference.ModelConfigRequest),
            "ModelStatistics": Method(api.model_statistics, inference.ModelStatisticsRequest),
            "RepositoryIndex": Method(api.repository_index, inference.RepositoryIndexRequest),
            "RepositoryModelLoad": Method(api.model_load, inference.RepositoryModelLoadRequest),
            "RepositoryModelUnload": Method(api.model_unload, inference.RepositoryModelUnloadRequest),
            "ModelInfer": Method(api.model_infer, limited=True),
            "ModelStreamInfer": Method(api.model_stream_infer, limited=True, streams=True, goes_on=_goes_on),
            **{name: Method(partial(_refuse, name)) for name in _UNSUPPORTED},
        },
    )


@dataclass(frozen=True, slots=True)
class _Codec(V2Codec):
    """The codec of a message; `decode` gets the bytes of a large one.

    Attributes:
        reading_cost: Cost of reading the message.
        raw: True if the request has raw contents; so has the answer then.
    """

    reading_cost: tuple[int, int]
    raw: bool
    protocol = "grpc"

    def cost(self, body: Any) -> tuple[int, int]:
        return (0, 0) if isinstance(body, InferRequest) else self.reading_cost

    def parse(self, body: Any) -> InferRequest:
        return v2_messages.parse(body) if isinstance(body, bytes) else v2_messages.decode(body)

    def encoding_cost(self, asked: RecordsRequest, answer: InferResponse) -> int:
        return v2_messages.encoding_cost(answer, self.raw)

    def encode(self, model: PublishedModel, asked: RecordsRequest, answer: InferResponse) -> Any:
        return v2_messages.encode(answer, self.raw)

    def portable(self, content: Any) -> bytes:
        data: bytes = content.SerializeToString()
        return data


class _Methods:
    """The methods of the service; each takes a message, or its bytes if it infers, and the call."""

    def __init__(self, front: FrontEnd, service: V2Service) -> None:
        self._front = front
        self._service = service
        self._plane = DataPlane(front)

    async def server_live(self, message: Any, call: GrpcCall) -> Any:
        return inference.ServerLiveResponse(live=True)

    async def server_ready(self, message: Any, call: GrpcCall) -> Any:
        return inference.ServerReadyResponse(ready=await self._service.ready())

    async def model_ready(self, message: Any, call: GrpcCall) -> Any:
        try:
            ready = await self._service.model_ready(message.name, message.version)
        except (ModelNotFound, VersionNotFound):
            ready = False
        return inference.ModelReadyResponse(ready=ready)

    async def server_metadata(self, message: Any, call: GrpcCall) -> Any:
        return inference.ServerMetadataResponse(**v2_metadata.server())

    async def model_metadata(self, message: Any, call: GrpcCall) -> Any:
        content = await self._service.metadata(message.name, message.version)
        return ParseDict(content, inference.ModelMetadataResponse())

    async def model_config(self, message: Any, call: GrpcCall) -> Any:
        content = await self._service.config(message.name, message.version)
        return ParseDict({"config": content}, inference.ModelConfigResponse())

    async def model_statistics(self, message: Any, call: GrpcCall) -> Any:
        content = await self._service.statistics(message.name, message.version)
        return ParseDict(content, inference.ModelStatisticsResponse())

    async def repository_index(self, message: Any, call: GrpcCall) -> Any:
        return ParseDict({"models": await self._service.index(message.ready)}, inference.RepositoryIndexResponse())

    async def model_load(self, message: Any, call: GrpcCall) -> Any:
        await self._control(message, LOAD, call)
        return inference.RepositoryModelLoadResponse()

    async def model_unload(self, message: Any, call: GrpcCall) -> Any:
        await self._control(message, UNLOAD, call)
        return inference.RepositoryModelUnloadResponse()

    async def _control(self, message: Any, action: str, call: GrpcCall) -> None:
        timeout = self._front.limited(call.timeout)
        await self._service.control(message.model_name, action, message.parameters, timeout)

    async def model_infer(self, text: bytes, call: GrpcCall) -> Any:
        message, codec, body = _opened(text)
        model = await self._plane.find(call, codec.protocol, named(message.model_name), message.model_version)
        return await self._plane.infer(call, codec, model, codec.opened(body))

    async def model_stream_infer(self, messages: AsyncIterator[bytes], call: GrpcCall) -> AsyncIterator[Any]:
        """Answer ModelStreamInfer: many requests at a time. A failed request does not end the stream.

        Whole answers are in the order of the requests. Pieces (a decoupled model) come as they are made.
        """
        replies: asyncio.Queue[Any] = asyncio.Queue(_MOST_AHEAD)
        reader = asyncio.create_task(self._read(messages, call, replies))
        try:
            while (reply := await replies.get()) is not None:
                yield reply
            await reader
        finally:
            reader.cancel()
            # The reader cancels the requests, which are stopped then.
            await asyncio.gather(reader, return_exceptions=True)

    async def _read(self, messages: AsyncIterator[bytes], call: GrpcCall, replies: asyncio.Queue[Any]) -> None:
        tasks: set[asyncio.Task[None]] = set()
        slots = asyncio.Semaphore(_MOST_AHEAD)
        before: asyncio.Task[None] | None = None
        try:
            async for text in messages:
                await slots.acquire()
                before = asyncio.create_task(self._answer(text, call, replies, before))
                tasks.add(before)
                before.add_done_callback(tasks.discard)
                before.add_done_callback(lambda _: slots.release())
            await asyncio.gather(*tasks)
            await replies.put(None)
        except BaseException as error:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if not isinstance(error, asyncio.CancelledError):
                # Whoever takes the replies raises the error then. Of one that has cancelled this task, none takes them.
                await replies.put(None)
            raise

    async def _answer(
        self, text: bytes, stream: GrpcCall, replies: asyncio.Queue[Any], before: asyncio.Task[None] | None
    ) -> None:
        """Put the replies to a request of a stream; an empty one ends them if the request asks for it."""
        began = time.perf_counter()
        call, status = replace(stream), 499
        message = inference.ModelInferRequest()
        try:
            message, codec, body = _opened(text)
            model = await self._plane.find(call, codec.protocol, named(message.model_name), message.model_version)
            asks_end = _ENDS in message.parameters and message.parameters[_ENDS].bool_param
            if model.described and model.described.in_pieces:
                async with aclosing(self._pieces(call, codec, model, body)) as responses:
                    async for made in responses:
                        made.parameters[_FINAL].bool_param = False
                        await replies.put(inference.ModelStreamInferResponse(infer_response=made))
                asks_end = True
            else:
                made = _message(await self._plane.infer(call, codec, model, body))
                await _ended(before)
                if asks_end:
                    made.parameters[_FINAL].bool_param = False
                await replies.put(inference.ModelStreamInferResponse(infer_response=made))
            status = 200
            if asks_end:
                last = inference.ModelInferResponse(
                    model_name=model.name, model_version=call.version or model.version, id=message.id
                )
                last.parameters[_FINAL].bool_param = True
                await replies.put(inference.ModelStreamInferResponse(infer_response=last))
        except Exception as raised:
            error = raised if isinstance(raised, ServingError) else unexpected(raised)
            if error is not raised:
                log.exception("a request of ModelStreamInfer")
            status, call.version = error.http_status, error.version or ""
            failed = inference.ModelInferResponse(
                model_name=message.model_name, model_version=call.version, id=message.id
            )
            await _ended(before)
            await replies.put(inference.ModelStreamInferResponse(error_message=error.message, infer_response=failed))
        finally:
            self._front.metrics.answered("grpc", call.model, status, time.perf_counter() - began, call.version)

    async def _pieces(
        self, call: GrpcCall, codec: _Codec, model: PublishedModel, body: Any
    ) -> AsyncGenerator[Any, None]:
        """Yield a response for each piece of the answer to a request of one record."""
        self._front.check(model)
        batch = await self._plane.read(codec, body, model.described)
        if len(batch.records) != 1:
            raise InvalidInput(
                f"the request has {len(batch.records)} records; expected one, as the model answers in pieces"
            )
        begun = False
        (pieces,) = self._plane.streams(call, codec, model, batch)
        async with aclosing(pieces):
            async for piece in pieces:
                if not isinstance(piece, Restarted):
                    begun, call.version = True, piece.version or ""
                    response = codec.merge(call, model, batch, [piece.outputs])
                    yield _message(await self._plane.write(codec, model, batch, response))
                elif begun:
                    raise RequestRestarted("the answer started again after a failure; send the request again")


def _goes_on(reply: Any) -> bool:
    """Return True if other replies to the same request follow."""
    parameters = reply.infer_response.parameters
    return _FINAL in parameters and not parameters[_FINAL].bool_param


async def _ended(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        await asyncio.wait({task})


async def _refuse(name: str, message: bytes, call: GrpcCall) -> Any:
    raise unsupported(name)


def _opened(text: bytes) -> tuple[Any, _Codec, Any]:
    """Return the message of a request, without the tensors of a large one; its codec, and what this one reads."""
    if len(text) < _SMALL:
        message = proto.parse(inference.ModelInferRequest, text)
        return message, _Codec((0, 0), bool(message.raw_input_contents)), message
    # Protobuf reads typed contents number by number. Of raw contents, only texts need a loop.
    message, cost = v2_messages.envelope(text)
    return message, _Codec((cost, len(text)), bool(message.raw_input_contents)), text


def _message(content: Any) -> Any:
    return inference.ModelInferResponse.FromString(content) if isinstance(content, bytes) else content
