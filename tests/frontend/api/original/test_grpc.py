"""The original's gRPC service."""

import json

import grpc
import pytest

from cluster_serving.frontend.proto import original
from tests.support.fixtures.generating import generating
from tests.support.fixtures.grpc_calls import caller


def test_the_originals_service_answers(channel, job):
    call = caller(channel, "grpc.FrontEndGRPCService")
    assert "grpc serving frontend" in call("Ping", original.Empty(), original.StringReply).message
    for method, message in {
        "GetAllModels": original.Empty(),
        "GetModelsWithName": original.GetModelsWithNameReq(modelName=job),
        "GetModelsWithNameAndVersion": original.GetModelsWithNameAndVersionReq(modelName=job, modelVersion="1"),
    }.items():
        found = call(method, message, original.ModelsReply).clusterServingMetaDatas
        assert ("x", "1") in [(row.features, row.modelVersion) for row in found if row.modelName == job]
    asked = original.PredictReq(modelName=job, modelVersion="1", input='{"instances": [{"x": [1, 2]}, {"x": [3]}]}')
    predictions = json.loads(call("Predict", asked, original.PredictReply).response)
    assert [json.loads(json.loads(text)["value"])["data"] for text in predictions] == [[1, 2], [3]]
    metrics = call("GetMetrics", original.Empty(), original.MetricsReply).metrics
    assert {row.count for row in metrics if row.name.endswith("redis.put")} >= {1}
    with pytest.raises(grpc.RpcError, match="no 'instances'"):
        call("Predict", original.PredictReq(modelName=job, input="{}"), original.PredictReply)
    with pytest.raises(grpc.RpcError, match="no model"):
        call("GetModelsWithName", original.GetModelsWithNameReq(modelName="another"), original.ModelsReply)


def test_an_error_of_the_model_names_its_instance(redis_server, serve, job, tmp_path):
    asked = original.PredictReq(
        modelName=job, input='{"instances": [{"first": 1, "count": 1}, {"first": 1, "count": -1}]}'
    )
    with generating(redis_server.port, job, tmp_path), grpc.insecure_channel(serve().grpc) as channel:
        call = caller(channel, "grpc.FrontEndGRPCService")
        with pytest.raises(grpc.RpcError, match=r"instances\[1\]: count is -1; expected 0 or more"):
            call("Predict", asked, original.PredictReply)
