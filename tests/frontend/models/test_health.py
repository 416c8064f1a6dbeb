"""Health of jobs, and of front ends."""

import asyncio
from dataclasses import replace

import httpx
import pytest

from cluster_serving.client import announcements
from cluster_serving.frontend import arguments
from cluster_serving.frontend.models.dispatch import Dispatch
from cluster_serving.frontend.models.health import Health
from cluster_serving.frontend.models.registry import ModelRegistry
from cluster_serving.protocol.entry import parse_entry
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport, read_reports
from tests.support.fixtures.echo import failing
from tests.support.fixtures.front_end import Running
from tests.support.fixtures.waiting import wait_until


def test_a_front_end_is_ready_while_its_job_answers_and_again_when_it_does(serve, report, db, job):
    url = f"{serve('--probeInterval=0.2', '--probeTimeout=0.5').url}/health/ready"
    missing = httpx.get(url)
    assert (missing.status_code, missing.json()["ready"]) == (503, False)
    assert job in missing.json()["error"]
    report(("x", "float32", (None, 2)))
    wait_until(lambda: "no answer" in httpx.get(url, timeout=30).json().get("error", ""))
    for _ in range(2):
        with failing(db, job):
            wait_until(lambda: httpx.get(url, timeout=30).status_code == 200)
        wait_until(lambda: httpx.get(url, timeout=30).status_code == 503)
    # A probe that nobody answered is not left behind.
    wait_until(lambda: db.xlen(job) <= 1)


def test_a_model_that_declares_no_inputs_is_ready_as_its_slots_say(serve, report, db, job):
    report()
    url = serve("--probeInterval=0.2", "--probeTimeout=0.5").url
    # Tools of vLLM ask the second path.
    for path in ("/health/ready", "/health"):
        assert httpx.get(url + path).json() == {"ready": True}
    assert httpx.get(f"{url}/v2/models/{job}/ready").status_code == 200
    # No request can be made up that it would take.
    assert not db.exists(job)
    report(state="stopped")
    wait_until(lambda: httpx.get(f"{url}/health/ready").status_code == 503)


def test_a_front_end_is_ready_only_if_each_required_model_is(serve, report, db, job):
    other = f"{job}-other"
    report(("x", "float32", (None, 2)))
    report(("x", "float32", (None, 2)), job=other)
    urls = {
        required: f"{serve('--probeInterval=0.2', '--probeTimeout=0.5', f'--requiredModels={required}').url}"
        for required in (job, f"{job},{other}", f"{job},missing", "")
    }
    answers = {}
    with failing(db, job):
        for required, url in urls.items():
            answers[required] = httpx.get(f"{url}/health/ready", timeout=30)
    assert [answers[required].status_code for required in urls] == [200, 503, 503, 503]
    assert f"model {other}: no answer" in answers[f"{job},{other}"].json()["error"]
    assert f"model {other}: no answer" in answers[""].json()["error"]
    assert "'missing'" in answers[f"{job},missing"].json()["error"]
    # A job that was stopped on purpose is not missed.
    report(("x", "float32", (None, 2)), job=other, state="stopped")
    with failing(db, job):
        wait_until(lambda: other not in httpx.get(f"{urls['']}/health/ready", timeout=30).text)


def test_readiness_names_no_model_to_whom_has_no_key(serve, keys, job):
    file, key = keys
    url = f"{serve(f'--apiKeysFile={file}').url}/health/ready"
    for wrong in ({}, {"x-api-key": "wrong"}):
        probe = httpx.get(url, headers=wrong)
        assert (probe.status_code, probe.json()["ready"]) == (503, False)
        assert job not in probe.text
    assert job in httpx.get(url, headers={"x-api-key": key}).json()["error"]


def test_a_model_that_cannot_be_loaded_is_not_ready_and_says_why(serve, report, db, job):
    report(("x", "float32", (None, 2)))
    db.hset(JobKeys(job).slots(), "0", SlotReport("", "failed", code="MODEL_ERROR", error="no such file").to_json())
    response = httpx.get(f"{serve().url}/health/ready")
    assert response.status_code == 503
    assert "no such file" in response.json()["error"]


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_job_that_does_not_run_is_said_to_be_stopped(serve, report, db, job, how):
    report(("x", "float64", (None, 2)))
    url = serve(f"--models={job}").url
    assert httpx.get(f"{url}/models/{job}").json()[0]["state"] == "ready"
    if how == "stopped":
        (slot,) = read_reports(db.hgetall(JobKeys(job).slots()))
        db.hset(JobKeys(job).slots(), "0", replace(slot, state="stopped").to_json())
    else:
        # Nobody was left to say so: its attempt has given no heartbeat.
        report(("x", "float64", (None, 2)), attempt="gone")
    wait_until(lambda: httpx.get(f"{url}/models/{job}").json()[0]["state"] == "stopped")
    row = {"name": job, "version": "1", "state": "UNAVAILABLE", "reason": "its job does not run"}
    assert httpx.post(f"{url}/v2/repository/index").json() == [row]
    ready = httpx.get(f"{url}/health/ready")
    why = "its job is stopped" if how == "stopped" else "none of its slots has given a heartbeat for "
    assert ready.status_code == 503 and ready.json()["error"].startswith(f"model {job}: {why}")
    if how == "stopped":
        assert httpx.get(f"{url}/v2/models/{job}/ready").status_code == 503
        infer = httpx.post(f"{url}/v2/models/{job}/infer", json={"inputs": [{"name": "x"}]})
        assert infer.status_code == 400
    # What is asked meanwhile waits for the next start, in the form that the model expects.
    assert httpx.post(f"{url}/v1/requests", json={"instances": [{"x": [0.1, 0.2]}]}).status_code == 202
    ((_, fields),) = db.xrange(job)
    assert parse_entry(b"0-0", fields).decode()[1]["x"].dtype == "float64"


@pytest.mark.usefixtures("echo")
def test_a_job_is_watched_once_however_many_ask(redis_server, report, job):
    report(("x", "float32", (None, None)))

    async def main():
        dispatch = Dispatch(redis_server.url)
        registry = ModelRegistry(dispatch, [job])
        health = Health(registry, dispatch, interval=2, timeout=30)
        model = await registry.model(job)
        others = asyncio.all_tasks()
        assert await asyncio.gather(*(health.problem(model) for _ in range(5))) == [""] * 5
        watchers = [task for task in asyncio.all_tasks() - others if "Health._watch" in repr(task)]
        assert len(watchers) == 1
        await health.close()
        await dispatch.close()

    asyncio.run(main())


def test_a_redis_that_is_away_is_not_ready_but_alive(monkeypatch):
    monkeypatch.setattr(announcements, "SUBSCRIBE_TIMEOUT", 0.5)
    running = Running(arguments.read(["--redisUrl=redis://127.0.0.1:1", "--port=0", "--grpcPort=0"], {}))
    try:
        assert httpx.get(f"{running.url}/health/live").json() == {"live": True}
        for path in ("/health/ready", "/models"):
            response = httpx.get(f"{running.url}{path}", timeout=30)
            assert response.status_code == 503
            assert "127.0.0.1:1" in response.json()["error"]
        metrics = httpx.get(f"{running.url}/metrics", headers={"accept": "text/plain"}, timeout=30)
        assert 'status="503"' in metrics.text
    finally:
        running.stop()
