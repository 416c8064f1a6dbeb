"""Metrics, as the original shows them and as Prometheus reads them."""

import json

import httpx
import pytest

from cluster_serving.frontend import arguments
from cluster_serving.protocol.keys import JobKeys
from tests.support.fixtures.front_end import Running
from tests.support.fixtures.waiting import wait_until

BODY = json.dumps({"instances": [{"x": [1, 2]}, {"x": [3, 4]}]})
FIELDS = ["name", "count", "meanRate", "min", "max", "mean", "median", "stdDev"]
PERCENTILES = [f"_{name}Percentile" for name in ("75th", "95th", "98th", "99th", "999th")]


@pytest.mark.parametrize("accept", ["application/json", "*/*", "text/plain;q=0.1, application/json", "text/plain;q=0"])
def test_metrics_have_the_form_of_the_guide(ask, accept):
    ask.post("/predict", content=BODY)
    metrics = ask.get("/metrics", headers={"accept": accept}).json()
    by_name = {metric["name"]: metric for metric in metrics}
    assert list(metrics[0]) == FIELDS + PERCENTILES
    for prefix in ("zoo.serving.", "bigdl.serving."):
        assert by_name[f"{prefix}request.predict"]["count"] == 1
        assert by_name[f"{prefix}redis.wait"]["count"] == 2
        for step in ("put", "get"):
            assert by_name[f"{prefix}redis.{step}"]["count"] > 0
            assert 0 < by_name[f"{prefix}redis.{step}"]["mean"] < 30_000
        assert {f"{prefix}{name}" for name in ("request.overall", "request.metrics")} <= by_name.keys()


def test_prometheus_gets_its_own_format(ask, job, db):
    ask.post("/predict", content=BODY)
    ask.post("/predict", content="nonsense")
    ask.get("/nowhere")
    text = ask.get("/metrics", headers={"accept": "application/openmetrics-text;q=0.8,text/plain;q=0.5,*/*;q=0.1"}).text
    labels = f'model="{job}",protocol="original"'
    assert f'cluster_serving_http_requests_total{{{labels},status="200",version="1"}} 1.0' in text
    assert f'cluster_serving_http_requests_total{{{labels},status="400",version=""}} 1.0' in text
    assert f'cluster_serving_http_request_seconds_count{{{labels},version="1"}} 1.0' in text
    assert f"cluster_serving_http_instances_sum{{{labels}}} 2.0" in text
    assert f'cluster_serving_queue_length{{serving_job="{job}"}} 0\n' in text
    assert "cluster_serving_http_in_flight 0.0" in text
    assert "nowhere" not in text


def test_a_job_whose_figures_redis_refuses_is_missing_alone_and_logged(serve, report, job, db, caplog):
    report(("x", "float32", (None, 2)))
    report(("x", "float32", (None, 2)), job=f"{job}-other")
    db.set(JobKeys(job).dead_letters, "no stream")
    text = httpx.get(f"{serve().url}/metrics", headers={"accept": "text/plain"}).text
    assert f'cluster_serving_queue_length{{serving_job="{job}-other"}} 0\n' in text
    assert f'cluster_serving_queue_length{{serving_job="{job}"}}' not in text
    assert f"the metrics of job {job} are missing: Redis at" in caplog.text
    assert "WRONGTYPE" in caplog.text


def test_prometheus_sees_from_the_start_which_jobs_are_ready(serve, report, job):
    report(("x", "float32", (None, 2)))
    report(("x", "float32", (None, 2)), job=f"{job}-failed", state="failed")
    front = serve()
    text = httpx.get(f"{front.url}/metrics", headers={"accept": "text/plain"}).text
    assert f'cluster_serving_ready{{model="{job}",serving_job="{job}",version="1"}} 1.0' in text
    assert f'cluster_serving_ready{{model="{job}-failed",serving_job="{job}-failed",version="1"}} 0.0' in text
    for name, failed in ((job, 0), (f"{job}-failed", 1)):
        slots = f'cluster_serving_slots{{serving_job="{name}",version="1",state="%s"}} %d'
        assert slots % ("ready", 1 - failed) in text and slots % ("failed", failed) in text
        assert slots % ("silent", 0) in text


def test_a_model_that_is_served_without_redis_is_not_ready_for_prometheus():
    running = Running(
        arguments.read(["--redisUrl=redis://127.0.0.1:1", "--port=0", "--grpcPort=0", "--models=one"], {})
    )
    try:
        text = httpx.get(f"{running.url}/metrics", headers={"accept": "text/plain"}, timeout=30).text
    finally:
        running.stop()
    assert 'cluster_serving_ready{model="one",serving_job="one",version="1"} 0.0' in text


def test_a_new_model_that_is_not_served_is_seen_everywhere(serve, report, echo, job, db, tmp_path):
    report(("x", "float32", (None, 2)))
    front = serve()
    plain = {"accept": "text/plain"}
    refused = f'cluster_serving_model_refused{{serving_job="{job}"}} '

    def get(path, **headers):
        return httpx.get(f"{front.url}{path}", headers=headers)

    assert f"{refused}0\n" in get("/metrics", **plain).text
    assert get(f"/models/{job}").json()[0]["refusedModel"] == ""
    db.hset(JobKeys(job).controller, "refused", "no graph")
    wait_until(lambda: f"{refused}1\n" in get("/metrics", **plain).text)
    wait_until(lambda: get(f"/models/{job}").json()[0]["refusedModel"] == "no graph")
    assert get("/health/ready").json() == {"ready": True, "refusedModels": {job: "no graph"}}
    db.delete(JobKeys(job).controller)
