"""Calls of gRPC services in tests."""

from cluster_serving.frontend.proto import inference


def caller(channel, service):
    """Calls a unary method of a service by name."""

    def call(method, message, reply, timeout=60, **options):
        path = f"/{service}/{method}"
        stub = channel.unary_unary(path, type(message).SerializeToString, reply.FromString)
        return stub(message, timeout=timeout, **options)

    return call


def typed(datatype, field, values, shape):
    request = inference.ModelInferRequest(id="7")
    tensor = request.inputs.add(name="x", datatype=datatype, shape=shape)
    getattr(tensor.contents, field).extend(values)
    return request


def raw(data, shape=(1, 2), datatype="FP32", **more):
    request = inference.ModelInferRequest(raw_input_contents=data, **more)
    request.inputs.add(name="x", datatype=datatype, shape=shape)
    return request
