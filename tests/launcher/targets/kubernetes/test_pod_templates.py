import pytest
import yaml

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.targets.kubernetes import pod_templates
from cluster_serving.launcher.targets.kubernetes.pod_templates import CONTAINER, ENTRY, OPTIONS, Pods


def files(template, volume):
    return [
        item["key"] for one in template["spec"]["volumes"] if one["name"] == volume for item in one["secret"]["items"]
    ]


def test_only_the_jobmanager_gets_the_options_of_the_job():
    pods = Pods("job-1")
    assert files(pods.template("jobmanager", {}), "cluster-serving-job") == [ENTRY, OPTIONS]
    assert files(pods.template("taskmanager", {}), "cluster-serving-job") == [ENTRY]


def test_the_volume_is_mounted_read_only():
    template = Pods("job-1", volume="models").template("taskmanager", {})
    claim = next(one for one in template["spec"]["volumes"] if one["name"] == "cluster-serving")
    assert claim["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    mounts = template["spec"]["containers"][0]["volumeMounts"]
    assert all(mount["readOnly"] for mount in mounts)


def test_a_small_model_keeps_its_folders():
    template = Pods("job-1", model={"model-0": "variables/index"}).template("taskmanager", {})
    model = next(one for one in template["spec"]["volumes"] if one["name"] == "cluster-serving-model")
    assert model["secret"]["items"] == [{"key": "model-0", "path": "variables/index"}]


def test_a_template_of_the_user_is_kept_and_not_changed(tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "kind": "Pod",
                "spec": {
                    "nodeSelector": {"disk": "fast"},
                    "containers": [{"name": CONTAINER, "env": [{"name": "A", "value": "1"}]}, {"name": "other"}],
                },
            }
        )
    )
    given = pod_templates.given({"kubernetes.pod-template-file.default": str(file)}, "taskmanager")
    before = yaml.safe_dump(given)
    template = Pods("job-1", environment={"B": "2"}).template("taskmanager", given)
    assert yaml.safe_dump(given) == before
    assert template["spec"]["nodeSelector"] == {"disk": "fast"}
    main, other = template["spec"]["containers"]
    assert main["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    assert other == {"name": "other"}


@pytest.mark.parametrize("text", ["[]", "kind: Deployment", "a: ["])
def test_a_file_that_is_no_template_is_named(tmp_path, text):
    file = tmp_path / "pod.yaml"
    file.write_text(text)
    with pytest.raises(LaunchError, match=r"pod-template-file: .*pod\.yaml"):
        pod_templates.given({"kubernetes.pod-template-file.taskmanager": str(file)}, "taskmanager")
