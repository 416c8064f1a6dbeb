"""A job, or a peer, through KServe's gRPC protocol; requests are bytes made beforehand."""

from typing import Any
from urllib.parse import urlsplit

import grpc.aio
import numpy as np

from cluster_serving.bench.load.payload import v2_input
from cluster_serving.bench.load.target import Endpoint, Failed, Lost
from cluster_serving.frontend.proto import inference as pb
from cluster_serving.protocol.inputs import Array

_METHOD = "/inference.GRPCInferenceService/ModelInfer"
_UNREACHABLE = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)


class GrpcEndpoint(Endpoint):
    """A model at `grpc://host:port/model`, whose inputs and outputs are tensors of float32."""

    def open(self) -> "GrpcTarget":
        """Return a target that connects at its first request; call it in the event loop."""
        return GrpcTarget(self)


def over_grpc(endpoint: Endpoint, url: str) -> GrpcEndpoint:
    """Return the address of the same requests through gRPC."""
    return GrpcEndpoint(**vars(endpoint) | {"kind": "grpc", "url": url})


class GrpcTarget:
    """A server that answers over one connection; see `LoadTarget`."""

    def __init__(self, endpoint: Endpoint) -> None:
        address = urlsplit(endpoint.url)
        self._timeout = endpoint.timeout
        self._requests = []
        for record in endpoint.records:
            request = pb.ModelInferRequest(model_name=address.path.strip("/"))
            for name, value in record.items():
                request.inputs.add(**v2_input(name, value, endpoint.batched))
                request.raw_input_contents.append(np.asarray(value).tobytes())
            self._requests.append(request.SerializeToString())
        self._channel = grpc.aio.insecure_channel(address.netloc)
        self._call = self._channel.unary_unary(_METHOD, None, pb.ModelInferResponse.FromString)

    async def ask(self, variant: int) -> Any:  # noqa: D102
        try:
            return await self._call(self._requests[variant], timeout=self._timeout)
        except grpc.aio.AioRpcError as error:
            if error.code() in _UNREACHABLE:
                raise Lost(error.details()) from None
            raise Failed(error.code().name, error.details() or "") from None

    def read(self, answer: Any) -> Array:  # noqa: D102
        values = [np.frombuffer(data, "f4") for data in answer.raw_output_contents]
        return np.concatenate(values or [np.array(output.contents.fp32_contents) for output in answer.outputs])

    async def aclose(self) -> None:  # noqa: D102
        await self._channel.close()
