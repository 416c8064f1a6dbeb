"""The gRPC service of the original's front end, `grpc.FrontEndGRPCService`.

Source: frontEndGRPC.proto of analytics-zoo 0.12. `Predict` returns the JSON list of its predictions.
"""

from collections.abc import Sequence
from typing import Any

from cluster_serving.frontend.api.json_codec import JsonCodec
from cluster_serving.frontend.api.json_text import writing_cost
from cluster_serving.frontend.api.original import instances, predictions
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.dataplane import Call, DataPlane, DecodedRequest, succeeded
from cluster_serving.frontend.errors import without_errors
from cluster_serving.frontend.models.registry import PublishedModel
from cluster_serving.frontend.proto import original
from cluster_serving.frontend.server.grpc.call import GrpcCall
from cluster_serving.frontend.server.grpc.server import Method, Service
from cluster_serving.frontend.server.metrics import as_json
from cluster_serving.protocol.columns import Outcomes
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.results import Outputs
from cluster_serving.protocol.slots import SlotReport

NAME = "grpc.FrontEndGRPCService"

_PERCENTILES = ("75th", "95th", "98th", "99th", "999th")
_WELCOME = "welcome to analytics zoo grpc serving frontend"


def service(front: FrontEnd) -> Service:
    """Return the service of a front end."""
    api = _Methods(front)
    return Service(
        NAME,
        {
            "Ping": Method(api.ping, original.Empty),
            "GetMetrics": Method(api.metrics, original.Empty),
            "GetAllModels": Method(api.models, original.Empty),
            "GetModelsWithName": Method(api.models, original.GetModelsWithNameReq),
            "GetModelsWithNameAndVersion": Method(api.models, original.GetModelsWithNameAndVersionReq),
            "Predict": Method(api.predict, original.PredictReq, limited=True),
        },
    )


class _Codec(JsonCodec[DecodedRequest, Sequence[Outputs]]):
    protocol = "grpc"
    needs_signature = False

    def decode(self, body: bytes, most: int, described: SlotReport | None) -> DecodedRequest:
        return DecodedRequest(without_errors(instances.read(body, most, described)))

    def merge(self, call: Call, model: PublishedModel, asked: DecodedRequest, outcomes: Outcomes) -> Sequence[Outputs]:
        return succeeded(outcomes, "instances[{}]")

    def encoding_cost(self, asked: DecodedRequest, answer: Sequence[Outputs]) -> int:
        return writing_cost(answer, as_texts=True)

    def encode(self, model: PublishedModel, asked: DecodedRequest, answer: Sequence[Outputs]) -> str:
        return predictions.texts(answer, model.post_processing)


class _Methods:
    """The methods of the service; each takes a message and the call."""

    def __init__(self, front: FrontEnd) -> None:
        self._front = front
        self._plane = DataPlane(front)
        self._codec = _Codec()

    async def ping(self, message: Any, call: GrpcCall) -> Any:
        return original.StringReply(message=_WELCOME)

    async def metrics(self, message: Any, call: GrpcCall) -> Any:
        reply = original.MetricsReply()
        for row in as_json(await self._front.total_metrics()):
            times = {name: row[name] for name in ("meanRate", "mean", "median", "stdDev")}
            percentiles = {f"Percentile{name}": row[f"_{name}Percentile"] for name in _PERCENTILES}
            limits = {name: row[name] for name in ("count", "min", "max")}
            reply.metrics.add(name=row["name"], **times, **percentiles, **limits)
        return reply

    async def models(self, message: Any, call: GrpcCall) -> Any:
        # GetAllModels has neither name nor version, GetModelsWithName no version.
        name, version = getattr(message, "modelName", ""), getattr(message, "modelVersion", "")
        if name:
            model = await self._front.registry.model(name, version)
            version = version and model.version
        reply = original.ModelsReply()
        for model in await self._front.registry.versions():
            if name in ("", model.name) and version in ("", model.version):
                reply.clusterServingMetaDatas.append(self._describe(model))
        return reply

    async def predict(self, message: Any, call: GrpcCall) -> Any:
        model = await self._plane.find(call, self._codec.protocol, message.modelName, message.modelVersion)
        text = await self._plane.infer(call, self._codec, model, message.input.encode())
        return original.PredictReply(response=text)

    def _describe(self, model: PublishedModel) -> Any:
        options = self._front.options
        return original.ClusterServingGRPCMetaData(
            modelName=model.name,
            modelVersion=model.version,
            redisInputQueue=model.job,
            redisOutputQueue=JobKeys(model.job).result(""),
            timeWindow=options.time_window,
            countWindow=options.count_window,
            redisSecureEnabled=options.redis_address.startswith("rediss:"),
            features=",".join(spec.name for spec in model.loaded.inputs) if model.loaded else "",
        )
