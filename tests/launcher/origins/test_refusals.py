"""What is not taken over is refused with the way out, and nothing of it is run or written."""

import json
import re
import zipfile

import pytest

from cluster_serving.launcher import origins
from cluster_serving.launcher.errors import LaunchError
from tests.support.payloads import foreign

BOMB = b"raise SystemExit('foreign code was run')"


def test_a_folder_of_no_server_is_refused_with_what_is_expected(taking, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    done = taking.run(tmp_path / "other")
    said = done.stderr
    assert done.returncode == 1 and "Traceback" not in said and not list(taking.folder.iterdir())
    assert "Found: notes.txt" in said and "MLmodel" in said and "config.pbtxt" in said
    assert "does not exist" in taking.refused(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("model.keras", "holds a model that is served as it is: run cluster-serving-init, and set modelPath: "),
        ("model.tar.gz", "name this file, with --from"),
        ("model/model.py", "Truss calls its class Model: move its code into a handler"),
        ("code/inference.py", "SageMaker calls it: move its code into a handler"),
        ("adapter_config.json", "merge it with merge_and_unload()"),
        ("models/iris/latest", "perhaps a store of models: name this folder"),
        ("model.gguf", "load it in a handler, with llama-cpp-python"),
    ],
)
def test_a_folder_that_no_server_describes_has_a_way_out(tmp_path, file, message):
    place = tmp_path / "other" / file
    place.parent.mkdir(parents=True)
    place.write_bytes(BOMB)
    with pytest.raises(LaunchError, match=re.escape(message)):
        origins.read(tmp_path / "other")


def test_weights_that_generate_texts_are_not_exported_for_features(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(LaunchError, match=r"generates texts \(LlamaForCausalLM\): a handler loads it"):
        origins.read(tmp_path)


def test_a_model_folder_with_files_is_not_overwritten(taking, tmp_path):
    source = foreign.save_torchserve(tmp_path)
    taking.model.mkdir()
    (taking.model / "mine.onnx").write_text("mine")
    done = taking.run(source)
    assert done.returncode == 2 and "has files already; name a new folder" in done.stderr
    assert [file.name for file in taking.folder.iterdir()] == ["model"]
    assert taking.run(source, "--force").returncode == 0


@pytest.mark.parametrize(
    ("files", "model", "message"),
    [
        (
            {"model.pt": b"PK", "model.py": BOMB},
            {"serializedFile": "model.pt", "modelFile": "model.py"},
            "code in model.py",
        ),
        ({"handler.py": BOMB}, {"handler": "handler.py"}, "code in its handler"),
        ({"model.pt": b"\x80\x04N."}, {"serializedFile": "model.pt"}, "a pickle and not TorchScript"),
        ({}, {"serializedFile": "../../etc/passwd"}, "names the file '../../etc/passwd'"),
        ({}, {"serializedFile": "/etc/passwd"}, "names the file '/etc/passwd'"),
        ({"../up.pt": b""}, {"serializedFile": "model.pt"}, "'../up.pt' lies outside of the archive"),
    ],
)
def test_archives_of_torchserve(taking, tmp_path, files, model, message):
    assert message in taking.refused(foreign.archive(tmp_path / "a.mar", files, **model))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("index_to_name.json", "[1", "index_to_name.json cannot be read: Expecting"),
        ("index_to_name.json", '["cat"]', "index_to_name.json holds a list; expected names with values"),
        ("index_to_name.json", '{"cat": "0"}', "names the class 'cat'; expected a number"),
        ("index_to_name.json", '{"9999999999": "cat"}', "names the class '9999999999'; expected a number"),
        ("model-config.yaml", "batchSize: [", "model-config.yaml cannot be read: while parsing"),
        ("model-config.yaml", "- batchSize", "model-config.yaml holds a list; expected names with values"),
    ],
)
def test_files_beside_a_model_of_torchserve_that_cannot_be_read(taking, tmp_path, name, content, message):
    files = {"model.pt": foreign.save_flowers_script(tmp_path), name: content}
    model = {"serializedFile": "model.pt", "configFile": name if name.endswith("yaml") else ""}
    assert message in taking.refused(foreign.archive(tmp_path / "a.mar", files, **model))


def test_torchserve_archives_that_are_none(tmp_path):
    (tmp_path / "a.mar").write_bytes(b"\x1f\x8bno zip")
    with pytest.raises(LaunchError, match="a.mar is not a ZIP archive"):
        origins.read(tmp_path / "a.mar")
    with zipfile.ZipFile(tmp_path / "c.mar", "w") as packed:
        packed.writestr("MAR-INF/MANIFEST.json", "[]")
    with pytest.raises(LaunchError, match=r"MANIFEST.json names no model"):
        origins.read(tmp_path / "c.mar")
    with pytest.raises(LaunchError, match=r"none of its 2 models can be served: the model a.mar: .*; the model c.mar:"):
        origins.read(tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('backend: "python"', "move the code into a handler"),
        ('platform: "ensemble"', "take over its models one by one"),
        ('platform: "tensorrt_plan"', "serve the ONNX file that it was built from"),
        ("input [ { name: ", "config.pbtxt is not a protobuf message as text"),
    ],
)
def test_models_of_triton(taking, tmp_path, config, message):
    (tmp_path / "a" / "1").mkdir(parents=True)
    (tmp_path / "a" / "1" / "model.py").write_bytes(BOMB)
    (tmp_path / "a" / "config.pbtxt").write_text(config)
    assert message in taking.refused(tmp_path / "a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flavors: {sklearn: {pickled_model: model.pkl, serialization_format: cloudpickle}}", "skops.io.dump"),
        ("flavors: {lightgbm: {data: model.pkl}}", "booster_.save_model"),
        ("flavors: {lightgbm: {data: model.skops}}", "booster_.save_model"),
        ("flavors: {pytorch: {model_data: data}}", "torch.jit.trace"),
        ("flavors: {transformers: {}, python_function: {}}", "optimum-cli export onnx"),
        ("flavors: {python_function: {python_model: python_model.pkl}}", "move its code into a handler"),
        ("flavors: {spark: {}}", "docs/reference/models.md"),
        ("flavors: {onnx: {data: ../../model.pkl}}", "names the file '../../model.pkl'"),
        ("just: text", "names no flavors"),
        ("!!python/object/apply:os.system ['touch run']", "names no flavors"),
    ],
)
def test_models_of_mlflow(taking, tmp_path, text, message):
    folder = foreign.mlflow(tmp_path / "a", text, "model.pkl", "model.skops")
    (folder / "data").mkdir()
    (folder / "data" / "model.pth").write_bytes(b"\x80\x04N.")
    assert message in taking.refused(folder)
    assert not (taking.folder / "run").exists()


@pytest.mark.parametrize(
    ("config", "task"),
    [
        ({"model_type": "bert"}, "--library transformers --task feature-extraction"),
        ({"architectures": ["BertForSequenceClassification"]}, "--task text-classification"),
    ],
)
def test_weights_of_hugging_face_without_their_code(taking, tmp_path, config, task):
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text(json.dumps(config))
    (tmp_path / "bert" / "model.safetensors").touch()
    said = taking.refused(tmp_path / "bert")
    assert f"optimum-cli export onnx {task} --model" in said and "cluster-serving-init --from" in said
