"""The dashboard and the alerts, on a real Prometheus that reads the metrics of a running job."""

import json
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import yaml

from cluster_serving.client import InferenceFailed
from cluster_serving.frontend import arguments
from tests.support.fixtures.front_end import Running
from tests.support.fixtures.handled import NO_NEGATIVES, write
from tests.support.fixtures.redis_server import free_port
from tests.support.fixtures.waiting import wait_until

FOLDER = Path(__file__).parents[1] / "monitoring"
PANELS = json.loads((FOLDER / "grafana" / "dashboard.json").read_text("utf8"))["panels"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
RULES = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf8"))["groups"][0]["rules"]
NO_PROMETHEUS = "needs Prometheus (apt-get install prometheus)"

pytestmark = pytest.mark.skipif(not shutil.which("prometheus"), reason=NO_PROMETHEUS)


@pytest.fixture
def prometheus(cluster, tmp_path):
    """Address of a Prometheus that reads the metrics of all jobs of the cluster."""
    front = Running(
        arguments.read([f"--redisUrl=redis://127.0.0.1:{cluster.redis_port}", "--port=0", "--grpcPort=0"], {})
    )
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text("utf8"))
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"] = [{"targets": [front.url.removeprefix("http://")]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy(FOLDER / "alerts.yml", tmp_path)
    port = free_port()
    words = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}"]
    with subprocess.Popen(["prometheus", *words], cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        yield f"http://127.0.0.1:{port}"
        process.terminate()
    front.stop()


def test_every_query_of_the_dashboard_returns_data_of_a_running_job(started, prometheus, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    write(folder, NO_NEGATIVES)
    queue, _ = started(jobName="charted", modelPath=folder, modelParallelism=1)

    def send():
        queue.predict({"x": 1}, timeout=60)
        with pytest.raises(InferenceFailed):
            queue.predict({"x": -1}, timeout=60)

    def found(query):
        filled = query.replace("$__rate_interval", "30s").replace("$serving_job", "charted")
        reply = httpx.get(f"{prometheus}/api/v1/query", params={"query": filled}).json()
        assert reply["status"] == "success", (query, reply)
        return [each for each in reply["data"]["result"] if each["value"][1] != "NaN"]

    def empty():
        send()
        return [query for query in QUERIES if not found(query)]

    with suppress(AssertionError):
        wait_until(lambda: not empty(), 120)
    assert not empty()
    names = {each["metric"]["serving_job"] for each in found("cluster_serving_queue_length")}
    assert "charted" in names
    # Prometheus has given no name of ours another one.
    assert not found('{__name__=~"cluster_serving.*",exported_job!=""}')

    alerts = httpx.get(f"{prometheus}/api/v1/rules").json()["data"]["groups"][0]["rules"]
    assert [rule["health"] for rule in alerts] == ["ok"] * len(RULES)
    wait_until(lambda: {"ServingRequestsFail", "ServingHasDeadLetters"} <= raised(prometheus, send), 60)


def raised(prometheus, send):
    send()
    return {each["labels"]["alertname"] for each in httpx.get(f"{prometheus}/api/v1/alerts").json()["data"]["alerts"]}


CASES = {
    "ServingQueueIsOld": [("oldest_waiting_seconds", "11x20")],
    "ServingRequestsFail": [('records_failed_total{code="X"}', "0+10x20"), ("request_seconds_count", "0+100x20")],
    "ServingHasNoSlot": [('slots{state="ready"}', "0x20"), ('slots{state="failed"}', "1x20")],
    "ServingHasDeadLetters": [("requests_given_up_total", "0 1+0x20")],
    "ServingRefusesModel": [("model_refused", "1x20")],
    "ServingEndedSharing": [("sharing_ended", "1x20")],
    "ServingLosesRedis": [("reconnects_total", "0+10x20")],
    "ServingRedisDiskFails": [("redis_disk_failed", "1x20")],
    "ServingRedisIsFull": [("redis_memory_bytes", "95x20"), ("redis_memory_limit_bytes", "100x20")],
}
WELL = [
    ("oldest_waiting_seconds", "1x20"),
    ('records_failed_total{code="X"}', "0+1x20"),
    ("request_seconds_count", "0+100x20"),
    ('slots{state="ready"}', "1x20"),
    ("requests_given_up_total", "3x20"),
    ("model_refused", "0x20"),
    ("sharing_ended", "0x20"),
    ("reconnects_total", "7x20"),
    ("redis_disk_failed", "0x20"),
    ("redis_memory_bytes", "95x20"),
    ("redis_memory_limit_bytes", "0x20"),
]


def fired(series, alert, tmp_path):
    """True if the alert fires after five minutes of these series."""

    def full(name):
        name, _, labels = name.partition("{")
        return f'cluster_serving_{name}{{serving_job="one"{f",{labels}" if labels else "}"}'

    given = [{"series": full(name), "values": values} for name, values in series]
    case = {"eval_time": "5m", "alertname": alert, "exp_alerts": []}
    test = {"interval": "1m", "input_series": given, "alert_rule_test": [case]}
    shutil.copy(FOLDER / "alerts.yml", tmp_path)
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": ["alerts.yml"], "tests": [test]}))
    ran = subprocess.run(["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0 or f"alertname: {alert}" in ran.stdout + ran.stderr
    return ran.returncode != 0


@pytest.mark.parametrize("alert", CASES)
def test_each_alert_fires_for_its_cause_and_not_for_a_job_that_is_well(alert, tmp_path):
    assert {rule["alert"] for rule in RULES} == CASES.keys()
    assert fired(CASES[alert], alert, tmp_path)
    assert not fired(WELL, alert, tmp_path)
