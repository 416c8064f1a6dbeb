"""Requests of the benchmark through gRPC, to a front end whose job echoes."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from cluster_serving.bench.load import payload
from cluster_serving.bench.load.target import Endpoint, Failed, Lost, references
from cluster_serving.bench.suite.grpc_target import over_grpc
from tests.frontend.conftest import front, report, serve  # noqa: F401


@pytest.fixture
def endpoint(front, job):  # noqa: F811
    records = payload.random_records("x", (3, 4), "float32")
    return over_grpc(Endpoint("", "", "", records, batched=True), f"grpc://{front.grpc}/{job}")


def test_each_request_gets_its_rows(endpoint):
    answers = asyncio.run(references(endpoint))
    assert [answer.tolist() for answer in answers] == [record["x"].ravel().tolist() for record in endpoint.records]


def test_a_model_that_is_missing_is_an_error_and_a_server_that_is_missing_a_loss(endpoint):
    with pytest.raises(Failed, match="NOT_FOUND"):
        asyncio.run(references(replace(endpoint, url=f"{endpoint.url}-other")))
    with pytest.raises(Lost):
        asyncio.run(references(replace(endpoint, url="grpc://127.0.0.1:1/x", records=[{"x": np.zeros(1, "f4")}])))
