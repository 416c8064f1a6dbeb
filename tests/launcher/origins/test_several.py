"""Several models of another server become a folder of models, which one job serves."""

import shutil

import numpy as np
import pytest
import yaml

from cluster_serving.launcher import origins
from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.config import repository
from cluster_serving.launcher.config.job_options import job_options
from cluster_serving.launcher.errors import LaunchError
from tests.support.fixtures.tabular import answers
from tests.support.payloads import foreign, tables

X = tables.iris()[0][:5].astype("f4")


def written(taken, folder):
    """Write a configuration as the command does; return it, and its models with their options."""
    taken.write(folder / "model", force=False)
    (folder / "config.yaml").write_text(config_file.template(taken.keys))
    config = config_file.read(folder / "config.yaml")
    found = repository.find(config)
    assert repository.problem(config, found) == ""
    options = repository.with_models(config, job_options(config, "test"), found.names)
    assert [hosted.refused for hosted in options.hosted] == [""] * len(found.names)
    return config, dict(zip(found.names, options.hosted, strict=True))


def test_a_triton_repository(tmp_path):
    iris = foreign.save_triton(tmp_path)
    store = iris.parent
    shutil.copytree(iris, store / "roses")
    (store / "roses" / "config.pbtxt").write_text(
        'backend: "onnxruntime" max_batch_size: 4 instance_group [{count: 2 kind: KIND_GPU}]\n'
        'output [{name: "probabilities" data_type: TYPE_FP32 dims: [3] label_filename: "kinds.txt"}]\n'
        "version_policy { specific { versions: 1 } }"
    )
    (store / "roses" / "kinds.txt").write_text("a\nb\nc\n")
    for name, text in {"code": 'backend: "python"', "all": 'platform: "ensemble"', "7": "", "empty": ""}.items():
        (store / name).mkdir()
        (store / name / "config.pbtxt").write_text(text)
    (store / "7" / "1").mkdir()
    (store / "notes").mkdir()
    taken = origins.read(store)
    assert taken.keys == {"jobName": "model_repository"}
    assert taken.own["roses"] == {"maxBatchSize": 4, "modelVersion": 1}
    said = "\n".join(taken.left)
    for line in (
        "the model code: ",
        "move the code into a handler",
        "the model all: ",
        "the model 7: ",
        "the model empty: ",
        "roses: device: cuda, a key of the job",
        "roses: modelParallelism: 2, the slots of a job serve all",
        "roses: label_filename kinds.txt of config.pbtxt: set postProcessing: topN(3) | labels(kinds.txt)",
        "notes in ",
    ):
        assert line in said
    config, models = written(taken, tmp_path)
    assert (models["iris"].batch.max_batch_size, models["roses"].batch.max_batch_size) == (16, 4)
    assert (models["roses"].model.path, config.job_name) == (
        str(tmp_path / "model" / "roses" / "1"),
        "model_repository",
    )
    assert "  set   iris/config.yaml: maxBatchSize: 16, batchTimeout: 5" in [*taken.report()]
    (found,) = answers(tmp_path / "model" / "roses" / "1", X).values()
    np.testing.assert_allclose(found, foreign.probabilities(X), atol=1e-5)


def test_a_store_of_archives(tmp_path):
    (tmp_path / "net").mkdir()
    settings = "deviceType: gpu\nbatchSize: {}\nmaxWorkers: {}\n"
    for name, size in {"a": 2, "b": 3}.items():
        files = {"net.onnx": b"graph", "c.yaml": settings.format(size, size - 1)}
        foreign.archive(tmp_path / "store" / f"{name}.mar", files, serializedFile="net.onnx", configFile="c.yaml")
    models = '{"a": {"1.0": {"defaultVersion": true, "batchSize": 8}}}'
    (tmp_path / "store" / "config.properties").write_text(f"# text\njob_queue_size=10\nmodels={models}\n")
    taken = origins.read(tmp_path / "store")
    assert taken.keys == {"jobName": "store", "device": "cuda"}
    assert taken.own == {"a": {"maxBatchSize": 2}, "b": {"maxBatchSize": 3}}
    assert sorted(taken.files) == ["a/net.onnx", "b/net.onnx"]
    said = "\n".join(taken.left)
    assert "b: modelParallelism: 2" in said and "a: modelParallelism" not in said
    assert "a 1.0 in models of config.properties: set maxBatchSize: 8" in said
    assert "job_queue_size of config.properties" in said
    # The same lines of several models are one.
    assert sum("a, b: the handler base_handler" in line for line in taken.left) == 1


MODELS = """
    model_config_list {
      config {
        name: "half" base_path: "/models/half" model_platform: "tensorflow"
        model_version_policy { specific { versions: 1 versions: 2 } }
        version_labels { key: 'stable' value: 1 }
      }
      config: { name: 'three', base_path: '/srv/store/three', model_version_policy: { specific: { versions: 3 } } }
      config { name: "away" base_path: "s3://bucket/m" model_platform: "tensorflow" }
      config { name: "gone" base_path: "/models/gone" }
      config { name: "nine" base_path: "/models/half" model_version_policy { specific { versions: 9 } } }
      config { name: "other" base_path: "/models/half" model_platform: "hashmap" }
      config { name: "up" base_path: "../half" }
    }
"""


FILES = ("saved_model.pb", "variables/.keep")


@pytest.fixture
def store(tmp_path):
    for name in ("half/1", "half/2", "three/3"):
        (tmp_path / "store" / name / "variables").mkdir(parents=True)
        (tmp_path / "store" / name / "saved_model.pb").write_bytes(b"graph")
    (tmp_path / "store" / "models.config").write_text(MODELS)
    return tmp_path / "store"


@pytest.mark.parametrize("name", ["", "models.config"])
def test_a_file_of_tensorflow_serving(store, name):
    taken = origins.read(store / name)
    # The folder of no variables is a part of a SavedModel.
    assert sorted(taken.files) == [f"{version}/{file}" for version in ("half/1", "half/2", "three/3") for file in FILES]
    assert taken.own == {"half": {}, "three": {"modelVersion": 3}}
    assert taken.keys == {"jobName": "store", "watchModel": True}
    said = "\n".join(taken.left)
    for line in (
        "half: model_version_policy: the latest is served",
        "half: version_labels stable (version 1): clients name the version",
        "the model away: the base_path of away is an address: give it a job of its own, with modelPath: s3://bucket/m/1",
        "the model gone: the base_path of gone, /models/gone, does not exist",
        "serves version 9; found: 1, 2",
        "gives other the model_platform hashmap",
        "the base_path of up is '../half'",
    ):
        assert line in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model_config_list {}", "lists no models"),
        ("custom_model_config { type_url: 'a' }", "lists no models"),
        ("model_config_list { config { name: ", "is not a protobuf message as text"),
        ("model_config_list { config { name: 'a' } config { name: 'a' } }", "lists the model a 2 times"),
        ("max_batch_size { value: 128 }", "is not the model of a server that is known here"),
    ],
)
def test_files_of_tensorflow_serving_that_list_none(store, text, message):
    (store / "other.config").write_text(text)
    with pytest.raises(LaunchError, match=message):
        origins.read(store / "other.config")


def test_models_whose_name_one_job_cannot_have_twice(tmp_path):
    for name in ("store", "b"):
        folder = foreign.mlflow(tmp_path / "store" / name, "flavors: {lightgbm: {data: model.lgb}}")
        (folder / "model.lgb").write_text("tree")
    taken = origins.read(tmp_path / "store")
    assert taken.keys == {"jobName": "store-models"} and [*taken.own] == ["b", "store"]
    taken.write(tmp_path / "model", force=False)
    assert yaml.safe_load("\n".join(str(path.name) for path in (tmp_path / "model").iterdir())) == "b store"
