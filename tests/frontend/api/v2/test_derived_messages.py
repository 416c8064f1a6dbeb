"""Each field of each message of the gRPC services, with other values: no call fails within the server."""

import re

import grpc

from cluster_serving.frontend.proto import inference, original
from tests.support.fixtures.grpc_calls import raw, typed
from tests.support.payloads import derived_messages

OURS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
}
"""Status of a call that is refused."""

FREE = re.compile(r"id |(\w+\.0\.)?parameters\[|outputs (is missing|has)|modelName is ''|.*fp32_contents\[0\] is nan")
"""Changes that leave a request right."""


def test_other_values_of_any_field_are_answered_or_refused(serve, report, echo, job):
    report(("x", "float32", (None, 2)))
    infer = typed("FP32", "fp32_contents", [1, 2], [1, 2])
    infer.outputs.add(name="x")
    infer.model_name = job
    calls = {
        "/inference.GRPCInferenceService/ModelInfer": [infer, raw([b"\0" * 8], model_name=job)],
        "/inference.GRPCInferenceService/ModelMetadata": [inference.ModelMetadataRequest(name=job)],
        "/grpc.FrontEndGRPCService/Predict": [original.PredictReq(modelName=job, input='{"instances": [[1, 2]]}')],
    }
    faults = []
    with grpc.insecure_channel(serve().grpc) as channel:
        for path, examples in calls.items():
            for example in examples:
                call = channel.unary_unary(path, type(example).SerializeToString, None)
                call(example, timeout=30)
                for what, message in derived_messages.messages(example):
                    try:
                        call(message, timeout=30)
                        is_right = FREE.match(what)
                        answer = "answered"
                    except grpc.RpcError as error:
                        is_right = error.code() in OURS and len(error.details()) < 500
                        answer = f"{error.code()}: {error.details()}"
                    if not is_right:
                        faults.append(f"{path}: {what[:100]}: {answer[:200]}")
    assert not faults, "\n".join(faults)
