"""The gRPC services of gRPC itself, asked by their own clients."""

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.support.fixtures.echo import failing
from tests.support.fixtures.waiting import wait_until

SERVING, NOT_SERVING, UNKNOWN = 1, 2, 3


def asked(service=""):
    return health_pb2.HealthCheckRequest(service=service)


def test_health_is_that_of_the_front_end_or_of_a_model_and_needs_no_key(serve, report, db, job, keys):
    front = serve("--probeInterval=0.2", "--probeTimeout=0.5", f"--apiKeysFile={keys[0]}")
    with grpc.insecure_channel(front.grpc) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        report(("x", "float32", (None, 2)))
        with pytest.raises(grpc.RpcError) as raised:
            stub.Check(asked("another"), timeout=60)
        assert raised.value.code() is grpc.StatusCode.NOT_FOUND
        assert raised.value.details() == "there is no service and no model 'another'"
        services = ["", job, "inference.GRPCInferenceService", "grpc.FrontEndGRPCService"]

        def statuses():
            return {stub.Check(asked(service), timeout=60).status for service in services}

        with failing(db, job):
            wait_until(lambda: statuses() == {SERVING})
        wait_until(lambda: statuses() == {NOT_SERVING})


def test_watched_health_is_told_when_it_changes_and_ends_with_the_server(serve, report, db, job):
    front = serve("--probeInterval=0.2", "--probeTimeout=0.5", "--shutdownTimeout=60")
    with grpc.insecure_channel(front.grpc) as channel:
        watched = health_pb2_grpc.HealthStub(channel).Watch(asked(job), timeout=60)
        assert next(watched).status == UNKNOWN
        report(("x", "float32", (None, 2)))
        with failing(db, job):
            assert SERVING in (status.status for status in watched)
            front.stop()
        assert [status.status for status in watched] == [NOT_SERVING]


def test_callers_without_a_key_leave_places_to_those_who_have_one(serve, keys):
    file, key = keys
    front = serve(f"--apiKeysFile={file}", "--maxConnections=8")
    with grpc.insecure_channel(front.grpc) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watches = [stub.Watch(asked(), timeout=60) for _ in range(2)]
        for watch in watches:
            next(watch)
        with pytest.raises(grpc.RpcError, match="too many streams without an API key") as raised:
            next(stub.Watch(asked(), timeout=60))
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        assert next(stub.Watch(asked(), timeout=60, metadata=[("x-api-key", key)])).status
        watches[0].cancel()

        def has_place():
            try:
                return bool(next(stub.Watch(asked(), timeout=60)).status)
            except grpc.RpcError:
                return False

        wait_until(has_place)


def test_services_are_described_by_reflection(serve):
    with grpc.insecure_channel(serve().grpc) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert set(database.get_services()) == {
            "grpc.FrontEndGRPCService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
            "inference.GRPCInferenceService",
        }
        service = DescriptorPool(database).FindServiceByName("inference.GRPCInferenceService")
        request = service.methods_by_name["ModelInfer"].input_type
        assert (request.full_name, request.fields_by_name["raw_input_contents"].number) == (
            "inference.ModelInferRequest",
            7,
        )


def test_reflection_answers_in_its_first_version_too(serve):
    name = "grpc.reflection.v1.ServerReflection"
    with grpc.insecure_channel(serve().grpc) as channel:
        ask = channel.stream_stream(
            f"/{name}/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        (answer,) = ask(iter([reflection_pb2.ServerReflectionRequest(file_containing_symbol=name)]), timeout=60)
    (file,) = map(FileDescriptorProto.FromString, answer.file_descriptor_response.file_descriptor_proto)
    (method,) = file.service[0].method
    assert (file.package, file.service[0].name) == ("grpc.reflection.v1", "ServerReflection")
    assert method.input_type == ".grpc.reflection.v1.ServerReflectionRequest"
