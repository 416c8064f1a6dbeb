import re

import pytest

from cluster_serving.job.options import JobOptions, ModelOptions, RedisOptions
from cluster_serving.launcher.config.model import with_all_keys
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.targets.kubernetes import application as kubernetes
from cluster_serving.launcher.targets.kubernetes.application import KubernetesApplication
from cluster_serving.launcher.targets.kubernetes.kubectl import reason
from cluster_serving.launcher.targets.kubernetes.pod_templates import Pods


def target(tmp_path, **flink):
    keys = {"target": "kubernetes-application", "image": "an-image:1", "namespace": "serving"} | flink
    settings = {"modelPath": str(tmp_path), "redisUrl": "redis.example:6379"}
    settings |= {f"flink.{key}": value for key, value in keys.items()}
    return KubernetesApplication(with_all_keys().model_validate(settings))


@pytest.mark.parametrize(
    ("flink", "words"),
    [
        ({"options": {"kubernetes.namespace": "other"}}, "use flink.namespace"),
        ({"options": {"kubernetes.cluster-id": "mine"}}, "jobName"),
        ({"image": ""}, "needs flink.image"),
        ({"ship": "environment"}, "needs flink.volume"),
        ({"ship": "packages"}, "needs flink.volume"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_before_kubernetes_is_asked(tmp_path, flink, words):
    with pytest.raises(LaunchError, match=words):
        target(tmp_path, **flink).check()


def test_a_model_that_is_too_large_for_a_secret_needs_another_way(tmp_path):
    (tmp_path / "weights.bin").write_bytes(bytes(2_000_000))
    with pytest.raises(LaunchError, match=r"has 2\.0 MB.*flink\.volume.*URL.*image"):
        target(tmp_path).check()


@pytest.mark.parametrize(
    ("volume", "ship", "ships"), [("", "", "model"), ("models", "", "environment"), ("models", "model", "model")]
)
def test_what_ships_depends_on_the_volume(tmp_path, volume, ship, ships):
    assert target(tmp_path, volume=volume, ship=ship).config.ships == ships


@pytest.mark.parametrize("name", ["digits", "{digits}", "A_long.name-" * 9, "..."])
def test_a_deployment_has_a_name_that_flink_and_kubernetes_take(name):
    options = JobOptions("0123456789abcdef", ModelOptions("/model"), RedisOptions("redis://h:1/0", name))
    made = kubernetes._id(options)
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", made)
    assert len(made) <= 45


def test_jobs_whose_names_differ_in_signs_alone_have_deployments_of_their_own():
    ids = {
        kubernetes._id(JobOptions("0" * 16, ModelOptions("/model"), RedisOptions("redis://h:1/0", name)))
        for name in ("a.b", "a_b", "{a-b}")
    }
    assert len(ids) == 3


def test_a_secret_holds_the_files_of_several_small_models_by_their_folders(tmp_path):
    for name in ("a/model.onnx", "b/2/model.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    files = kubernetes._files(tmp_path)
    pods = Pods("serving", model={f"model-{at}": path for at, path in enumerate(files)})
    *_, volume = pods.template("taskmanager", {})["spec"]["volumes"]
    assert [item["path"] for item in volume["secret"]["items"]] == ["a/model.onnx", "b/2/model.json"]


def test_labels_of_the_user_are_pairs():
    assert kubernetes._pairs("team:a, cost:b") == {"team": "a", "cost": "b"}
    assert kubernetes._pairs("") == {}


def test_the_reason_of_kubectl_is_its_last_line():
    assert reason("warning: old\nerror: no context exists\n\n") == "no context exists"
    assert reason('Error from server (NotFound): pods "a" not found\n') == '(NotFound): pods "a" not found'
    assert reason("") == "kubectl failed without a message"
