"""charts/cluster-serving, checked by helm, and installed in the cluster of KUBECONFIG."""

import json
import os
import re
import shutil
import uuid
from pathlib import Path

import httpx
import pytest
import yaml

from cluster_serving.client import InputQueue, OutputQueue
from tests.support.fixtures.waiting import wait_until
from tests.support.worlds import containers, keda
from tests.support.worlds.containers import SLOW, call

CHART = Path(__file__).parents[2] / "charts" / "cluster-serving"

JOB = {
    "name": "digits",
    "config": {"modelPath": "/models/model", "imageResize": "8,8", "postProcessing": "topN(3)"},
    "slots": 2,
    "memory": 2500,
    "cpu": 0.2,
    "jobManager": {"cpu": 0.2},
    "model": {
        "mountPath": "/models",
        "init": {
            "image": containers.image("flink"),
            "command": ["python", "-m", "cluster_serving.launcher.quickstart.digits", "/models"],
        },
    },
}


def helm(*arguments, values=None, **options):
    if not shutil.which("helm"):
        pytest.skip("needs helm")
    given = ["--values", "-"] if values else []
    return call("helm", *arguments, *given, input=json.dumps(values) if values else None, **options)


def rendered(values):
    # Helm's own guess of a version is that of its release.
    text = helm("template", "it", CHART, "--kube-version", "1.33.0", values=values)
    return [document for document in yaml.safe_load_all(text) if document]


def test_helm_finds_nothing_wrong():
    assert "0 chart(s) failed" in helm("lint", CHART, values={"jobs": [JOB]})


def test_dashboard_and_alerts_are_those_of_the_folder():
    kinds = {each["kind"]: each for each in rendered({"jobs": [JOB], "monitoring": {"enabled": True}})}
    folder = CHART.parents[1] / "monitoring"
    assert kinds["PrometheusRule"]["spec"] == yaml.safe_load((folder / "alerts.yml").read_text("utf8"))
    assert kinds["ServiceMonitor"]["spec"]["endpoints"] == [{"port": "http", "path": "/metrics"}]
    dashboards = [
        each["data"]["cluster-serving.json"]
        for each in rendered({"jobs": [JOB], "monitoring": {"enabled": True}})
        if each["metadata"]["labels"].get("grafana_dashboard")
    ]
    assert dashboards == [(folder / "grafana" / "dashboard.json").read_text("utf8")]
    assert "PrometheusRule" not in {each["kind"] for each in rendered({"jobs": [JOB]})}


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"jobs": [JOB | {"memory": 1000}]}, "memory"),
        ({"jobs": [JOB | {"config": {}}]}, "modelPath"),
        ({"jobs": [JOB | {"replicas": 2}]}, "replicas"),
        ({"mode": "session"}, "mode"),
        ({"redis": {"enabled": False}}, "redis.url"),
        ({"jobs": [JOB | {"autoscaling": {"enabled": True}}], "mode": "operator"}, "mode: standalone"),
    ],
)
def test_a_mistake_in_the_values_is_named(values, field):
    text = helm("template", "it", CHART, "--kube-version", "1.33.0", values={"jobs": [JOB]} | values, check=False)
    assert text == ""
    with pytest.raises(AssertionError, match=field):
        helm("template", "it", CHART, "--kube-version", "1.33.0", values={"jobs": [JOB]} | values)


def test_jobs_have_objects_of_their_own_and_whole_numbers_stay_whole():
    second = JOB | {"name": "other", "config": JOB["config"] | {"maxImagePixels": 50_000_000}}
    documents = rendered({"jobs": [JOB, second]})
    names = [(document["kind"], document["metadata"]["name"]) for document in documents]
    assert len(set(names)) == len(names)
    assert names.count(("Deployment", "it-cluster-serving-other-taskmanager")) == 1
    config = next(d for d in documents if d["kind"] == "Secret" and d["metadata"]["name"].endswith("other"))
    assert '"maxImagePixels": 50000000' in config["stringData"]["config.yaml"]


def test_task_managers_follow_the_queue_up_to_a_limit():
    documents = rendered({"jobs": [JOB | {"autoscaling": {"enabled": True, "maxTaskManagers": 3}}]})
    scaled = next(document["spec"] for document in documents if document["kind"] == "ScaledObject")
    target = next(d for d in documents if d["metadata"]["name"] == scaled["scaleTargetRef"]["name"])
    assert "replicas" not in target["spec"]
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (1, 3)
    address = "it-cluster-serving-redis.default:6379"
    recipe = keda.recipe()
    for trigger in recipe["triggers"]:
        trigger["metadata"]["address"] = address
    assert (scaled["advanced"], scaled["triggers"]) == (recipe["advanced"], recipe["triggers"])
    config = next(d for d in documents if d["kind"] == "Secret")["stringData"]["config.yaml"]
    # All slots that there may be: two for each TaskManager.
    assert yaml.safe_load(config)["modelParallelism"] == 6


def test_no_pod_has_rights_it_does_not_need():
    pods = [
        d["spec"]["template"]["spec"] for d in rendered({"jobs": [JOB]}) if d["kind"] in ("Deployment", "StatefulSet")
    ]
    assert len(pods) == 4
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"]
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.fixture
def kubectl():
    """The command kubectl, for a namespace of the test."""
    if not (os.environ.get("KUBECONFIG") and shutil.which("kubectl") and shutil.which("helm")):
        pytest.skip("needs KUBECONFIG, kubectl and helm")
    namespace = f"test-{uuid.uuid4().hex[:8]}"
    call("kubectl", "create", "namespace", namespace)
    yield ["kubectl", "--namespace", namespace]
    call("kubectl", "delete", "namespace", namespace)


@pytest.mark.parametrize(
    ("images", "product"),
    [({}, "valkey"), ({"redis": "mirror.example/valkey:8.1"}, "valkey"), ({"redis": "redis:7"}, "redis")],
)
def test_the_image_decides_on_valkey_or_redis(images, product):
    (server,) = (document for document in rendered({"jobs": [], "images": images}) if document["kind"] == "StatefulSet")
    (container,) = server["spec"]["template"]["spec"]["containers"]
    assert container["command"] == [f"{product}-server"]
    assert container["readinessProbe"]["exec"]["command"] == [f"{product}-cli", "ping"]
    # Redis does not know the option.
    assert ("--rdb-version-check" in container["args"]) == (product == "valkey")


def test_the_operators_schema_takes_what_the_chart_writes(kubectl):
    if call("kubectl", "get", "crd", "flinkdeployments.flink.apache.org", check=False) == "":
        pytest.skip("needs the CustomResourceDefinitions of the Flink Kubernetes Operator")
    documents = rendered({"jobs": [JOB], "mode": "operator"})
    done = call(*kubectl, "apply", "--dry-run=server", "-f", "-", input=yaml.safe_dump_all(documents))
    assert "flinkdeployment.flink.apache.org/it-cluster-serving-digits created" in done


@pytest.fixture
def release(kubectl):
    """The chart, installed with a Redis, one job and the front end; serving."""
    containers.needs_images()
    values = {
        "images": {"flink": containers.image("flink"), "client": containers.image("client")},
        "redis": {"maxMemory": "200mb", "memory": 300, "storage": {"size": ""}},
        "http": {"cpu": 0.1, "readinessPath": "/health/ready"},
        "jobs": [JOB],
    }
    values["images"]["redis"] = containers.image("base")
    in_namespace = kubectl[1:]
    helm("install", "it", CHART, *in_namespace, "--wait", f"--timeout={SLOW}s", values=values)
    yield "it-cluster-serving"
    helm("uninstall", "it", *in_namespace, "--wait")
    kinds = "all,secrets,networkpolicies,poddisruptionbudgets,persistentvolumeclaims"
    ours = [*kubectl, "get", kinds, "--output=name", "--selector=app.kubernetes.io/instance=it"]
    wait_until(lambda: call(*ours) == "", SLOW)


@pytest.mark.timeout(4 * SLOW)
def test_a_release_serves_and_loses_nothing_when_pods_are_deleted(release, kubectl, tmp_path):
    taskmanager = [*kubectl, "exec", f"deployment/{release}-digits-taskmanager", "--container=taskmanager", "--"]
    images = []
    for name in call(*taskmanager, "ls", "/models/images").splitlines()[:10]:
        coded = call(*taskmanager, "base64", f"/models/images/{name}")
        images.append({"b64": coded.replace("\n", "")})
    labels = [int(re.search(r"label(\d)", name)[1]) for name in call(*taskmanager, "ls", "/models/images").split()[:10]]

    with containers.port_forward(kubectl, f"service/{release}-http", 10020) as port:
        body = {"instances": [{"image": images[0]}]}
        answer = httpx.post(f"http://localhost:{port}/v1/models/digits:predict", json=body, timeout=60).json()
    assert answer["predictions"][0][0]["class"] in range(10)

    with containers.port_forward(kubectl, f"service/{release}-redis", 6379) as port:
        url = f"redis://localhost:{port}/0"
        with InputQueue(name="digits", url=url) as requests, OutputQueue(name="digits", url=url) as results:
            for role in ("taskmanager", "jobmanager"):
                early = [requests.enqueue(f"{role}-early-{n}", image=image) for n, image in enumerate(images)]
                pods = ["pod", f"--selector=app.kubernetes.io/component={role}"]
                call(*kubectl, "delete", *pods, "--grace-period=0", "--force")
                late = [requests.enqueue(f"{role}-late-{n}", image=image) for n, image in enumerate(images)]
                answers = containers.results(results, early + late)
                found = [int(answer[0][0]) for answer in answers]
                assert sum(map(int.__eq__, found, labels * 2)) >= 18
