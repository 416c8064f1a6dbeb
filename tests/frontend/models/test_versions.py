"""Versions of models: those that are served, and the one that has answered."""

import httpx
import pytest

from cluster_serving.protocol.generations import CANARY, SERVING, Generation
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.results import encode_result
from cluster_serving.protocol.slots import SlotReport, TensorSpec
from tests.support.fixtures.echo import answering

X = ("x", "float32", (None, None))
ROWS = {"instances": [{"x": [1, 2]}]}
TENSORS = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}


@pytest.fixture
def client(serve):
    with httpx.Client(base_url=serve().url, timeout=30) as client:
        yield client


@pytest.fixture
def asked(db, job):
    """The versions that requests have named in the queue; version 2 answers those that name none."""
    names = []

    def answer(entry):
        names.append(entry.version)
        ((name, value),) = entry.decode()[1].items()
        return encode_result(entry.native, [name], [value]) | {"version": entry.version or "2"}

    with answering(db, job, answer):
        yield names
    db.delete(JobKeys(job).generations, JobKeys(job).slots(2))


def paths(job, version):
    return {
        f"/models/{job}/versions/{version}/predict": ROWS,
        f"/v1/models/{job}/versions/{version}:predict": ROWS,
        f"/v2/models/{job}/versions/{version}/infer": TENSORS,
    }


def test_a_version_that_is_not_served_is_refused_with_those_that_are(client, report, job, asked):
    report(X, version="2", numbered=True)
    (model,) = client.get(f"/models/{job}").json()
    assert model["modelVersion"] == "2"
    assert client.get(f"/v2/models/{job}").json()["versions"] == ["2"]
    assert [row["version"] for row in client.post("/v2/repository/index").json() if row["name"] == job] == ["2"]
    for version in ("1", "3"):
        for path, body in paths(job, version).items():
            response = client.post(path, json=body)
            error = f"version '{version}' of '{job}' is not served; served are: 2"
            assert (response.status_code, response.json()["error"]) == (404, error)
        for path in (f"/models/{job}/versions/{version}", f"/v2/models/{job}/versions/{version}"):
            assert client.get(path).status_code == 404
        response = client.post("/v1/requests", json=ROWS | {"model": job, "version": version})
        assert response.json()["code"] == "VERSION_NOT_FOUND"
    for path, body in paths(job, "2").items():
        assert client.post(path, json=body).headers["x-model-version"] == "2"
    # A version that a request names is part of the request: the job may change before it is computed.
    assert asked == ["2"] * 3


@pytest.mark.usefixtures("asked")
def test_answers_name_the_version_that_gave_them(client, report, job):
    # As shortly after an update: the front end has not read the new reports yet.
    report(X, version="1", numbered=True)
    assert client.post(f"/models/{job}/predict", json=ROWS).headers["x-model-version"] == "2"
    assert client.post(f"/v1/models/{job}:predict", json=ROWS).headers["x-model-version"] == "2"
    assert client.post(f"/v2/models/{job}/infer", json=TENSORS).json()["model_version"] == "2"
    later = client.post("/v1/requests", json=ROWS | {"model": job}).headers["location"]
    result = client.get(f"{later}?wait=30")
    assert (result.json()["version"], result.headers["x-model-version"]) == ("2", "2")
    assert '"version":"2"' in client.get(f"{later}/events").text
    metrics = client.get("/metrics", headers={"accept": "text/plain"}).text
    counted = f'cluster_serving_http_requests_total{{model="{job}",protocol="original",status="200",version="2"}} 1.0'
    assert counted in metrics


@pytest.mark.usefixtures("asked")
def test_clients_that_name_the_first_version_need_not_know_of_updates_of_a_model_without_versions(client, report, job):
    report(X, version="5")
    assert client.get(f"/v1/models/{job}/versions/1").json()["model_version_status"][0]["version"] == "5"
    for path, body in paths(job, "1").items():
        assert client.post(path, json=body).status_code == 200
    assert client.get(f"/models/{job}/versions/2").status_code == 404


def test_a_canary_is_listed_and_asked_by_its_version(client, report, job, db, asked):
    report(X, version="1", numbered=True)
    spec = TensorSpec(*X)
    canary = SlotReport("", "ready", "Echo", (spec,), (spec,), version="2", numbered=True)
    db.hset(JobKeys(job).slots(2), "0", canary.to_json())
    roles = {1: SERVING, 2: CANARY}
    records = {number: Generation(number, role, version=str(number)).to_json() for number, role in roles.items()}
    db.hset(JobKeys(job).generations, mapping=records)
    assert [model["modelVersion"] for model in client.get(f"/models/{job}").json()] == ["1", "2"]
    # Requests that name no version are divided by the job.
    assert client.get(f"/v2/models/{job}").json()["versions"] == ["1", "2"]
    for path, body in (paths(job, "2") | paths(job, "1")).items():
        assert client.post(path, json=body).headers["x-model-version"] == path.split("/versions/")[1][0]
    client.post(f"/models/{job}/predict", json=ROWS)
    assert asked == [*"222111", ""]
    assert "served are: 1, 2" in client.get(f"/models/{job}/versions/3").json()["error"]
