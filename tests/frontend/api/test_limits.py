"""Limits of the content of a body, over all APIs."""

import httpx
import pytest


@pytest.mark.usefixtures("vectors")
def test_too_many_instances_are_413(serve):
    response = httpx.post(f"{serve('--maxInstances=2').url}/predict", json={"instances": [{"x": [1]}] * 3})
    assert response.status_code == 413
    problem = "'instances' has 3 records, which count as 3072 bytes, 1024 each; at most 2048 bytes are taken"
    assert problem in response.json()["error"]


@pytest.mark.usefixtures("echo", "vectors")
def test_a_request_has_as_many_instances_as_its_bytes_allow_whatever_is_in_flight(serve, job):
    url = serve("--parallelism=2", f"--maxBodyBytes={3000 << 10}").url
    for count, status in ((3000, 200), (3001, 413)):
        instances = {"instances": [{"x": [1]}] * count}
        tensor = {"name": "x", "datatype": "FP32", "shape": [count, 1], "data": [1] * count}
        assert httpx.post(f"{url}/predict", json=instances, timeout=30).status_code == status
        assert httpx.post(f"{url}/v2/models/{job}/infer", json={"inputs": [tensor]}, timeout=30).status_code == status


@pytest.mark.usefixtures("vectors")
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"instances":[{"x":[%b[]]}]}' % (b"[]," * (1 << 20)), "1048576 lists"),
        (b'{"instances":[{%b"y":1}]}' % (b'"x":1,' * (1 << 16)), "65536 names"),
        (b'{"instances":[{"x":[%b1]}]}' % (b"1," * ((1 << 22) + 1)), "4194304 values"),
    ],
    # pytest hands the name of a test to the processes that it starts, and these are megabytes.
    ids=["lists", "names", "values"],
)
def test_json_that_is_costly_to_read_is_413_and_not_read(serve, job, content, problem):
    url = serve().url
    for path in ("/predict", "/v1/requests", f"/v2/models/{job}/infer"):
        response = httpx.post(f"{url}{path}", content=content, timeout=30)
        assert (response.status_code, response.json()["code"]) == (413, "REQUEST_TOO_LARGE")
        assert problem in response.json()["error"]


def test_a_question_without_tensors_has_at_most_64_kib(serve, job):
    for path in ("/v2/repository/index", f"/v2/repository/models/{job}/load"):
        response = httpx.post(f"{serve().url}{path}", content=b" " * (1 << 16) + b"{}", timeout=30)
        assert (response.status_code, response.json()["code"]) == (413, "REQUEST_TOO_LARGE")
