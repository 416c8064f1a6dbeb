"""Calls of KServe's inference clients, by v1 and v2."""

import asyncio
import sys

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

url, grpc = sys.argv[1:]
X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


def request(name="x", binary=False):
    tensor = InferInput(name, list(X.shape), "FP32")
    tensor.set_data_from_numpy(X, binary_data=binary)
    return InferRequest(model_name="vector", infer_inputs=[tensor])


async def fails(call, told):
    try:
        answer = await call
    except Exception as error:
        assert told in str(error), error
    else:
        raise AssertionError(f"answered with {answer}")


async def main():
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    assert await client.is_server_live(url)
    assert await client.is_server_ready(url)
    assert await client.is_model_ready(url, "vector")
    for name, binary in (("x", False), ("x", True), ("input-0", False)):
        answer = await client.infer(url, request(name, binary), model_name="vector")
        np.testing.assert_array_equal(answer.outputs[0].as_numpy(), -X)
    v1 = InferenceRESTClient(RESTConfig(protocol="v1"))
    answer = await v1.infer(url, {"instances": X.tolist()}, model_name="vector")
    assert answer == {"predictions": (-X).tolist()}
    assert await v1.is_model_ready(url, "vector")
    await fails(v1.is_model_ready(url, "another"), "there is no model 'another'")
    await fails(v1.explain(url, "vector", {"instances": X.tolist()}), "501")
    async with InferenceGRPCClient(grpc) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("vector")
        answer = await client.infer(request())
        np.testing.assert_array_equal(answer.outputs[0].as_numpy(), -X)


asyncio.run(main())
print("all answered")
