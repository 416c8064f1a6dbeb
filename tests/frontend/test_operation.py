"""Metrics, health, TLS and stopping."""

import asyncio
import datetime
import json
import signal
import ssl
import subprocess
import sys
import threading
from dataclasses import replace

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

from cluster_serving.connectors.answer import Answer, write_answers
from cluster_serving.connectors.stream import StreamReader, create_group
from cluster_serving.frontend import arguments
from cluster_serving.frontend.models.dispatch import Dispatch
from cluster_serving.frontend.models.health import Health
from cluster_serving.frontend.models.registry import ModelRegistry
from cluster_serving.frontend.server import tls
from cluster_serving.frontend.server.metrics import Timer
from cluster_serving.protocol.entry import parse_entry
from cluster_serving.protocol.keys import slots_key, stats_key
from cluster_serving.protocol.slots import SlotReport, read_reports
from cluster_serving.protocol.stats import SEEN
from tests.support.waiting import wait_until

BODY = json.dumps({"instances": [{"x": [1, 2]}, {"x": [3, 4]}]})
FIELDS = ["name", "count", "meanRate", "min", "max", "mean", "median", "stdDev"]
PERCENTILES = [f"_{name}Percentile" for name in ("75th", "95th", "98th", "99th", "999th")]


@pytest.mark.parametrize("accept", ["application/json", "*/*"])
def test_metrics_have_the_form_of_the_guide(ask, accept):
    ask.post("/predict", content=BODY)
    metrics = ask.get("/metrics", headers={"accept": accept}).json()
    by_name = {metric["name"]: metric for metric in metrics}
    assert list(metrics[0]) == FIELDS + PERCENTILES
    for prefix in ("zoo.serving.", "bigdl.serving."):
        assert by_name[f"{prefix}request.predict"]["count"] == 1
        assert by_name[f"{prefix}redis.wait"]["count"] == 2
        assert 0 < by_name[f"{prefix}redis.put"]["mean"] < 30_000
        assert {f"{prefix}{name}" for name in ("redis.get", "request.overall", "request.metrics")} <= by_name.keys()


def test_prometheus_gets_its_own_format(ask, job, db):
    ask.post("/predict", content=BODY)
    ask.post("/predict", content="nonsense")
    ask.get("/nowhere")
    text = ask.get("/metrics", headers={"accept": "application/openmetrics-text;q=0.8,text/plain;q=0.5,*/*;q=0.1"}).text
    labels = f'model="{job}",protocol="original"'
    assert f'cluster_serving_http_requests_total{{{labels},status="200"}} 1.0' in text
    assert f'cluster_serving_http_requests_total{{{labels},status="400"}} 1.0' in text
    assert f"cluster_serving_http_request_seconds_count{{{labels}}} 2.0" in text
    assert f"cluster_serving_http_instances_sum{{{labels}}} 2.0" in text
    assert f'cluster_serving_queue_length{{job="{job}",model="{job}",version="1"}} 0.0' in text
    assert "cluster_serving_http_in_flight 0.0" in text
    assert "nowhere" not in text


def test_a_timer_gives_milliseconds_and_percentiles():
    timer = Timer("t")
    assert timer.as_json("")["mean"] == 0
    for number in range(1, 101):
        timer.update(number / 1000)
    metric = timer.as_json("zoo.")
    assert (metric["name"], metric["count"], metric["min"], metric["max"]) == ("zoo.t", 100, 1.0, 100.0)
    assert (metric["median"], metric["_75thPercentile"], metric["_99thPercentile"]) == (50.0, 75.0, 99.0)


def test_a_front_end_is_ready_while_its_job_answers_and_again_when_it_does(serve, report, db, job):
    url = f"{serve('--canaryInterval=0.2', '--canaryTimeout=0.5').url}/health/ready"
    missing = httpx.get(url)
    assert (missing.status_code, missing.json()["ready"]) == (503, False)
    assert job in missing.json()["error"]
    report(("x", "float32", (None, 2)))
    wait_until(lambda: "no answer" in httpx.get(url, timeout=30).json().get("error", ""))
    for _ in range(2):
        with answering(db, job):
            wait_until(lambda: httpx.get(url, timeout=30).status_code == 200)
        wait_until(lambda: httpx.get(url, timeout=30).status_code == 503)
    # A canary that nobody answered is not left behind.
    wait_until(lambda: db.xlen(job) <= 1)


def test_a_model_that_cannot_be_loaded_is_not_ready_and_says_why(serve, report, db, job):
    report(("x", "float32", (None, 2)))
    db.hset(slots_key(job), "0", SlotReport("", "failed", code="MODEL_ERROR", error="no such file").to_json())
    response = httpx.get(f"{serve().url}/health/ready")
    assert response.status_code == 503
    assert "no such file" in response.json()["error"]


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_job_that_does_not_run_is_said_to_be_stopped(serve, report, db, job, how):
    report(("x", "float64", (None, 2)))
    url = serve(f"--models={job}").url
    assert httpx.get(f"{url}/models/{job}").json()[0]["state"] == "ready"
    if how == "stopped":
        (slot,) = read_reports(db.hgetall(slots_key(job)))
        db.hset(slots_key(job), "0", replace(slot, state="stopped").to_json())
    else:
        # Nobody was left to say so.
        db.hset(stats_key(job), SEEN, 1)
    wait_until(lambda: httpx.get(f"{url}/models/{job}").json()[0]["state"] == "stopped")
    row = {"name": job, "version": "1", "state": "UNAVAILABLE", "reason": "its job does not run"}
    assert httpx.post(f"{url}/v2/repository/index").json() == [row]
    if how == "stopped":
        ready = httpx.get(f"{url}/health/ready")
        assert (ready.status_code, ready.json()["error"]) == (503, f"model {job}: its job is stopped")
        assert httpx.get(f"{url}/v2/models/{job}/ready").status_code == 503
        infer = httpx.post(f"{url}/v2/models/{job}/infer", json={"inputs": [{"name": "x"}]})
        assert infer.status_code == 400
    # What is asked meanwhile waits for the next start, in the form that the model expects.
    assert httpx.post(f"{url}/v1/requests", json={"instances": [{"x": [0.1, 0.2]}]}).status_code == 202
    ((_, fields),) = db.xrange(job)
    assert parse_entry(b"0-0", fields).decode()[1]["x"].dtype == "float64"
    db.delete(stats_key(job))


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


def test_a_redis_that_is_away_is_not_ready_but_alive():
    from tests.support.front_end import Running

    running = Running(arguments.read(["--redisUrl=redis://127.0.0.1:1", "--port=0"], {}))
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


class answering:  # noqa: N801 - a context manager
    """Answers every request of a job while it is open."""

    def __init__(self, db, job):
        create_group(db, job)
        self._stopped = threading.Event()
        self._reader = StreamReader(db, job, "echo-0", claim_idle_ms=60_000)
        self._thread = threading.Thread(target=self._run, args=(db, job))

    def _run(self, db, job):
        while not self._stopped.is_set():
            if entries := self._reader.read(10, block_ms=20):
                write_answers(db, job, 60, [Answer(entry, "", {"value": "NaN", "code": "X"}) for entry in entries])

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._stopped.set()
        self._thread.join()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for localhost, as PEM and as PKCS12 with a password."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    store = pkcs12.serialize_key_and_certificates(b"k", key, made, None, BestAvailableEncryption(b"1234qwer"))
    (folder / "store.p12").write_bytes(store)
    return folder


@pytest.mark.parametrize("kind", ["pem", "pkcs12"])
def test_https_is_served_beside_http(serve, certificate, kind):
    if kind == "pem":
        given = [f"--httpsCertificatePath={certificate}/cert.pem", f"--httpsPrivateKeyPath={certificate}/key.pem"]
    else:
        given = [f"--httpsKeyStorePath={certificate}/store.p12", "--httpsKeyStoreToken=1234qwer"]
    plain, secure, _ = serve("--httpsEnabled=true", *given).urls
    assert plain.startswith("http://")
    trust = ssl.create_default_context(cafile=certificate / "cert.pem")
    url = secure.replace("127.0.0.1", "localhost")
    with httpx.Client(verify=trust) as client:
        assert client.get(f"{url}/health/live").status_code == 200
    assert httpx.get(f"{plain}/health/live").status_code == 200
    alone, _ = serve("--httpsEnabled=true", "--plainHttpEnabled=false", *given).urls
    assert alone.startswith("https://")


def test_a_key_store_that_cannot_be_used_is_named(certificate):
    def context(*given):
        return tls.server_context(arguments.read(["--httpsEnabled=true", *given], {}))

    with pytest.raises(tls.TlsError, match=r"store\.p12 cannot be read as PKCS12 with the given password") as caught:
        context(f"--httpsKeyStorePath={certificate}/store.p12", "--httpsKeyStoreToken=hidden")
    assert "hidden" not in str(caught.value)
    (certificate / "store.jks").write_bytes(b"\xfe\xed\xfe\xed...")
    with pytest.raises(tls.TlsError, match="keytool -importkeystore"):
        context(f"--httpsKeyStorePath={certificate}/store.jks")
    with pytest.raises(tls.TlsError, match="none"):
        context("--httpsCertificatePath=/none", "--httpsPrivateKeyPath=/none")


def test_what_was_accepted_is_answered_before_the_process_ends(redis_server, report, db, job):
    report(("x", "float32", (None, None)))
    command = [
        sys.executable,
        "-m",
        "cluster_serving.frontend.main",
        f"--redisUrl={redis_server.url}",
        "--port=0",
        "--grpcEnabled=false",
    ]
    with subprocess.Popen([*command, f"--redisInputQueue={job}"], stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().split()[-1]
        answers = []
        thread = threading.Thread(target=lambda: answers.append(httpx.post(f"{url}/predict", content=BODY, timeout=30)))
        thread.start()
        wait_until(lambda: db.xlen(job) == 2)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: not accepts(url))
        with answering(db, job):
            thread.join()
        assert process.wait(30) in (0, -signal.SIGTERM)
    assert [prediction["code"] for prediction in answers[0].json()["predictions"]] == ["INTERNAL"] * 2


def accepts(url):
    try:
        httpx.get(f"{url}/health/live")
    except httpx.ConnectError:
        return False
    return True
