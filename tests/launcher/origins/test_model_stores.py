"""Models in the stores of BentoML and MLServer, in the words that these write."""

import io
import json
import zipfile

import pytest
import yaml

from cluster_serving.launcher import origins
from cluster_serving.launcher.errors import LaunchError
from tests.support.payloads import foreign

CONTEXT = {"framework_name": "xgboost", "bentoml_version": "1.4.40", "python_version": "3.11.7"}


def bento_model(store, name, version, module, **files):
    folder = store / name / version
    folder.mkdir(parents=True)
    described = {"name": name, "version": version, "module": f"bentoml.{module}", "context": CONTEXT, "labels": {}}
    described |= {"signatures": {"predict": {"batchable": True}}, "options": {}, "novel": 1}
    (folder / "model.yaml").write_text(yaml.safe_dump(described))
    for file, content in files.items():
        (folder / file.replace("__", ".")).write_bytes(content)
    (store / name / "latest").write_text(version)
    return folder


@pytest.mark.parametrize(
    ("module", "file", "ours"),
    [
        ("xgboost", "saved_model__ubj", "model.ubj"),
        ("xgboost", "saved_model__json", "model.json"),
        # BentoML gives the text of LightGBM this name.
        ("lightgbm", "saved_model__ubj", "model.txt"),
        ("catboost", "saved_model__cbm", "model.cbm"),
        ("onnx", "saved_model__onnx", "model.onnx"),
        ("models", "model__ubj", "model.ubj"),
    ],
)
def test_a_model_of_bentoml(tmp_path, module, file, ours):
    folder = bento_model(tmp_path, "iris", "v1", module, **{file: b"model"})
    taken = origins.read(folder)
    assert taken.keys == {"jobName": "iris"} and [*taken.files] == [ours]
    assert taken.left[0].startswith("signatures of model.yaml: ") and taken.left[-1].startswith("novel of model.yaml")
    assert "options" not in "".join(taken.left)


def test_a_store_and_a_bento(tmp_path):
    store = tmp_path / "models"
    bento_model(store, "iris", "v1", "xgboost", saved_model__ubj=b"1")
    bento_model(store, "iris", "v2", "xgboost", saved_model__ubj=b"2")
    bento_model(store, "bad", "v1", "sklearn", saved_model__pkl=b"1")
    packed = bento_model(store, "packed", "v1", "mlflow") / "mlflow_model"
    foreign.mlflow(packed, "flavors: {lightgbm: {data: model.lgb}}")
    (packed / "model.lgb").write_text("tree")
    taken = origins.read(store)
    assert sorted(taken.own) == ["iris", "packed"]
    assert taken.files["iris/model.ubj"].read_bytes() == b"2"
    assert any(line.startswith("the model bad: ") and "skops.io.dump" in line for line in taken.left)
    # A bento lies beside the store, and names versions.
    bento = tmp_path / "bentos" / "shop" / "b1"
    bento.mkdir(parents=True)
    models = [{"tag": "iris:v1", "module": "bentoml.xgboost"}, "packed:latest"]
    described = {"service": "service:Shop", "name": "shop", "models": models, "python": {"packages": ["a"]}, "x": 1}
    (bento / "bento.yaml").write_text(yaml.safe_dump(described))
    taken = origins.read(bento)
    assert taken.keys == {"jobName": "shop"} and taken.files["iris/model.ubj"].read_bytes() == b"1"
    said = "\n".join(taken.left)
    for line in ("service of bento.yaml, service:Shop: the code", "python of bento.yaml", "x of bento.yaml: docs/"):
        assert line in said


def test_a_model_of_keras_is_packed_as_keras_writes_it(tmp_path):
    """BentoML keeps the members of the archive as files."""
    members = {"config.json": b"{}", "metadata.json": b"{}", "model.weights.h5": b"weights"}
    folder = bento_model(tmp_path, "net", "v1", "keras")
    for name, content in members.items():
        (folder / name).write_bytes(content)
    taken = origins.read(folder)
    assert [*taken.files] == ["model.keras"]
    with zipfile.ZipFile(io.BytesIO(taken.files["model.keras"])) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == members


def test_a_folder_of_hugging_face_in_a_store(tmp_path):
    folder = bento_model(tmp_path, "reader", "v1", "")
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").touch()
    with pytest.raises(LaunchError, match="holds weights .*optimum-cli export onnx"):
        origins.read(tmp_path / "reader")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").touch()
    bento_model(tmp_path, "reader", "v0", "onnx", saved_model__onnx=b"").parent.joinpath("latest").write_text("v1")
    taken = origins.read(tmp_path / "reader")
    assert taken.keys == {"jobName": "reader"} and [*taken.files] == ["model.onnx"]
    assert taken.left[-1].startswith(f"v0 of {tmp_path}/reader: older than the latest")


def test_the_latest_bento_and_the_options_of_its_service(tmp_path):
    bento_model(tmp_path / "models", "iris", "v1", "xgboost", saved_model__ubj=b"1")
    bento = tmp_path / "bentos" / "shop" / "b2"
    bento.mkdir(parents=True)
    config = {"workers": 2, "traffic": {"timeout": 1.5, "concurrency": 8}, "resources": {"gpu": 1, "cpu": "2"}}
    service = {"name": "shop", "models": [{"tag": "iris:v1"}], "dependencies": [], "config": config | {"http": {}}}
    described = {"service": "service:Shop", "name": "shop", "models": ["iris:v1"], "services": [service], "spec": 2}
    (bento / "bento.yaml").write_text(yaml.safe_dump(described | {"schema": {"routes": []}}))
    (bento.parent / "latest").write_text("b2")
    taken = origins.read(bento.parent)
    assert taken.keys == {"jobName": "iris", "requestDeadline": 1500, "modelParallelism": 2, "device": "cuda"}
    said = "\n".join(taken.left)
    for line in (
        "cpu of services.config.resources of bento.yaml: ",
        "concurrency of services.config.traffic of bento.yaml: maxQueueLength",
        "http of services.config of bento.yaml: docs/reference/config.md",
        "schema of bento.yaml: the model tells its own inputs",
    ):
        assert line in said


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([], "names no models of a store"),
        (["gone:1"], "no store holds 'gone:1'"),
        (["iris:v9"], "has no version v9; found: v1"),
        (["../models/iris:v1"], "no store holds"),
    ],
)
def test_bentofiles_whose_models_are_not_found(tmp_path, monkeypatch, models, message):
    monkeypatch.setenv("BENTOML_HOME", str(tmp_path))
    bento_model(tmp_path / "models", "iris", "v1", "xgboost", saved_model__ubj=b"1")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "bentofile.yaml").write_text(yaml.safe_dump({"service": "a:b", "models": models}))
    with pytest.raises(LaunchError, match=message):
        origins.read(tmp_path / "project")


def mlserver(folder, files, **settings):
    folder.mkdir(parents=True)
    (folder / "model-settings.json").write_text(json.dumps(settings))
    for name, content in files.items():
        (folder / name).write_text(content)
    return folder


@pytest.mark.parametrize(
    ("implementation", "file", "ours"),
    [
        ("mlserver_lightgbm.LightGBMModel", "iris-lightgbm.bst", "model.txt"),
        ("mlserver_xgboost.XGBoostModel", "mushroom.json", "model.json"),
        ("mlserver_xgboost.XGBoostModel", "model.bst", "model.ubj"),
        ("mlserver_catboost.CatboostModel", "model.cbm", "model.cbm"),
        ("mlserver_onnx.OnnxModel", "net.onnx", "model.onnx"),
    ],
)
def test_a_model_of_mlserver(tmp_path, implementation, file, ours):
    parameters = {"uri": f"./{file}", "version": "v1", "content_type": "np"}
    settings = {"max_batch_size": 5, "max_batch_time": 0.5, "parallel_workers": 2, "parameters": parameters}
    beside = {"settings.json": '{"http_port": 9090, "parallel_workers": 4}', "notes.md": ""}
    folder = mlserver(tmp_path / "a", {file: "model"} | beside, name="b", implementation=implementation, **settings)
    taken = origins.read(folder)
    assert taken.keys == {"jobName": "b", "maxBatchSize": 5, "batchTimeout": 500} and [*taken.files] == [ours]
    said = "\n".join(taken.left)
    assert "parallel_workers of model-settings.json" in said
    assert "parameters.content_type of model-settings.json: clients send arrays, or the columns" in said
    assert "parallel_workers of settings.json: processes are slots" in said
    assert "http_port of settings.json: of the server: the section http" in said
    assert f"notes.md in {folder}: not read" in said and file not in said


def test_pickles_of_mlserver_are_refused_and_the_rest_of_the_folder_taken(tmp_path):
    mlserver(tmp_path / "s" / "a", {"m.joblib": ""}, implementation="m.SKLearnModel", parameters={"uri": "./m.joblib"})
    mlserver(tmp_path / "s" / "b", {"model.bst": ""}, implementation="m.XGBoostModel")
    mlserver(tmp_path / "s" / "c", {}, implementation="models.Own")
    mlserver(tmp_path / "s" / "d", {"model.json": ""}, implementation="m.XGBoostModel")
    taken = origins.read(tmp_path / "s")
    assert sorted(taken.files) == ["b/model.ubj", "d/model.json"]
    said = "\n".join(taken.left)
    assert "the model a: " in said and "m.joblib, a pickle or code (SKLearnModel)" in said
    assert "/c is a model of Own: move its code into a handler" in said
    assert "b, d: XGBoostModel of model-settings.json: its runtime answers with label of a classifier alone" in said


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        ("m.AlibiExplainRuntime", {}, "a model of AlibiExplainRuntime: no explanations are computed here"),
        ("m.XGBoostModel", {"uri": "s3://bucket/a/model.ubj"}, "is an address: set modelPath: s3://bucket/a, and"),
        ("m.XGBoostModel", {"uri": "/mnt/models/other.ubj"}, "names the file '/mnt/models/other.ubj', and holds no"),
    ],
)
def test_models_of_mlserver_that_are_elsewhere_or_code(tmp_path, kind, parameters, message):
    folder = mlserver(tmp_path / "a", {}, implementation=kind, parameters=parameters)
    with pytest.raises(LaunchError, match=message):
        origins.read(folder)


def test_a_path_in_the_container_of_mlserver_is_looked_for_in_the_folder(tmp_path):
    parameters = {"uri": "/mnt/models/model.ubj", "environment_tarball": "e.tar.gz"}
    folder = mlserver(tmp_path / "a", {"model.ubj": ""}, implementation="m.XGBoostModel", parameters=parameters)
    taken = origins.read(folder)
    assert [*taken.files] == ["model.ubj"]
    assert taken.left[0].startswith("parameters.environment_tarball of model-settings.json: a job has its own image")


@pytest.mark.parametrize(
    ("flavors", "files", "keys"),
    [
        ("xgboost: {data: model.json}", ["model.json"], {}),
        ("xgboost: {data: model.ubj}", ["model.ubj"], {}),
        ("xgboost: {data: model.xgb}", ["model.xgb"], {}),
        (
            "sklearn: {pickled_model: model.skops, serialization_format: skops}, "
            "python_function: {predict_fn: predict_proba}",
            ["model.skops"],
            {"outputs": "probabilities"},
        ),
    ],
)
def test_files_of_mlflow_keep_their_kind_and_its_method(tmp_path, flavors, files, keys):
    folder = foreign.mlflow(tmp_path / "a", f"flavors: {{{flavors}}}", *files, "input_example.json")
    taken = origins.read(folder)
    assert [*taken.files] == files and taken.keys == {"jobName": "a"} | keys
    assert "input_example.json: files that no job reads; copy what a handler needs" in taken.left


@pytest.mark.parametrize(
    ("flavors", "folder"),
    [
        (
            "sentence_transformers: {code: null}, python_function: {data: model.sentence_transformer}",
            "model.sentence_transformer",
        ),
        ("transformers: {task: text-classification, model_binary: model, components: [tokenizer]}", "model"),
    ],
)
def test_folders_of_hugging_face_in_a_model_of_mlflow(tmp_path, flavors, folder):
    foreign.mlflow(tmp_path / "a", f"flavors: {{{flavors}}}")
    model = tmp_path / "a" / folder
    model.mkdir()
    (model / "config.json").write_text('{"architectures": ["BertForSequenceClassification"]}')
    (model / "model.safetensors").touch()
    tokenizer = tmp_path / "a" / "components" / "tokenizer"
    tokenizer.mkdir(parents=True)
    (tokenizer / "tokenizer.json").touch()
    copy = f"keeps tokenizer.json apart from the model: run cp {tmp_path}/a/components/\\*/\\* {model}"
    with pytest.raises(
        LaunchError, match=f"{copy} first; .* holds weights .*--task text-classification --model {model}"
    ):
        origins.read(tmp_path / "a")
    (model / "onnx").mkdir()
    (model / "onnx" / "model.onnx").touch()
    with pytest.raises(LaunchError, match=f"{copy}, then cluster-serving-init --from {tmp_path}/a"):
        origins.read(tmp_path / "a")
    (model / "tokenizer.json").touch()
    taken = origins.read(tmp_path / "a")
    assert [*taken.files] == ["model.onnx", "tokenizer.json"] and taken.keys["jobName"] == "a"


def test_other_flavors_of_mlflow(tmp_path):
    (tmp_path / "k" / "data").mkdir(parents=True)
    (tmp_path / "k" / "data" / "model.keras").touch()
    foreign.mlflow(tmp_path / "k", "flavors: {keras: {data: data, keras_version: 3.15.1}}")
    assert [*origins.read(tmp_path / "k").files] == ["model.keras"]
    foreign.mlflow(tmp_path / "c", "flavors: {catboost: {data: model.cb, model_type: CatBoostRegressor}}", "model.cb")
    assert "what MLflow answers" not in "".join(origins.read(tmp_path / "c").left)
    for fields, message in (
        ("peft_adaptor: peft", "holds an adapter .*merge_and_unload"),
        ("source_model_name: org/net", "names the model org/net of the Hub, and holds no weights"),
    ):
        foreign.mlflow(tmp_path / "t", f"flavors: {{transformers: {{{fields}}}}}")
        with pytest.raises(LaunchError, match=message):
            origins.read(tmp_path / "t")


def test_a_model_of_catboost_in_another_format_is_refused(tmp_path):
    folder = foreign.mlflow(tmp_path / "a", "flavors: {catboost: {data: model.cb, save_format: json}}", "model.cb")
    with pytest.raises(LaunchError, match="a model of CatBoost as json: save it as model.cbm"):
        origins.read(folder)
