from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cluster_serving.job.models.detect import check, detect
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import EngineMissing, ModelError

FOLDERS = {
    "OpenVINO": ["net.xml", "net.bin"],
    "TensorFlow": ["saved_model.pb", "variables/"],
    "TensorFlow frozen graph": ["net.pb", "graph_meta.json"],
    "TensorFlow checkpoint": ["net.ckpt.meta", "net.ckpt.index"],
    "Keras": ["net.keras"],
    "TorchScript": ["net.pt"],
    "torch.export": ["net.pt2"],
    "ONNX Runtime": ["net.onnx"],
    "Caffe": ["net.prototxt", "net.caffemodel"],
    "BigDL": ["net.model"],
    "XGBoost": ["model.json"],
    "LightGBM": ["model.txt"],
    "CatBoost": ["net.cbm"],
    "scikit-learn": ["net.skops"],
}


def make(folder: Path, names: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        path = folder / name
        path.mkdir() if name.endswith("/") else path.touch()
    return folder


@pytest.mark.parametrize("engine", FOLDERS)
def test_a_model_is_told_by_its_file_names(tmp_path, engine):
    files = detect(make(tmp_path, FOLDERS[engine]))
    assert files.format.engine == engine
    assert [path.name for path in files.paths] == [name.rstrip("/") for name in FOLDERS[engine]]
    assert all(path.exists() for path in files.paths)


@pytest.mark.parametrize(
    ("names", "engine"),
    [
        (["Net.PTH"], "TorchScript"),
        (["net.h5"], "Keras"),
        (["frozen_graph.pb", "graph_meta.json"], "TensorFlow frozen graph"),
        (["frozen_graph.pb"], "TensorFlow frozen graph"),
        (["frozen_graph.pb", "net.xml", "net.bin"], "OpenVINO"),
        (["checkpoint", "net.meta", "net.index", "net.data-00000-of-00001"], "TensorFlow checkpoint"),
        (["net.ckpt", "net.ckpt.meta", "graph_meta.json"], "TensorFlow checkpoint"),
        (["net.onnx", "net.onnx.data"], "ONNX Runtime"),
        (["net.bigdl"], "BigDL"),
        (["Net.ubj"], "XGBoost"),
        (["my_xgb.json"], "XGBoost"),
        (["XGBoost.model"], "XGBoost"),
        (["my_lightgbm.txt"], "LightGBM"),
        (["net.lgb", "labels.txt", "requirements.txt"], "LightGBM"),
        (["net.cb"], "CatBoost"),
        (["net.onnx", "model.json", "model.txt"], "ONNX Runtime"),
        (["model.ubj", "config.json", "tokenizer.json"], "XGBoost"),
    ],
)
def test_other_names_of_a_format_and_capitals_are_accepted(tmp_path, names, engine):
    assert detect(make(tmp_path, names)).format.engine == engine


def test_what_belongs_to_a_saved_model_is_no_frozen_graph(tmp_path):
    names = [*FOLDERS["TensorFlow"], "fingerprint.pb", "keras_metadata.pb", "graph_meta.json"]
    assert detect(make(tmp_path, names)).format.engine == "TensorFlow"


def test_hidden_and_unrelated_files_do_not_matter(tmp_path):
    extra = [".net.pt.swp", ".other.pt", "README.md", "labels.txt", "assets/", "fingerprint.pb", "keras_metadata.pb"]
    assert detect(make(tmp_path, FOLDERS["TensorFlow"] + extra)).format.engine == "TensorFlow"


def test_a_stray_part_of_another_format_does_not_matter(tmp_path):
    assert detect(make(tmp_path, ["net.pt", "vocabulary.bin"])).format.engine == "TorchScript"


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ([], "no model. Found: nothing"),
        (["README.md", "1/"], "no model. Found: 1/, README.md"),
        (["net.tflite"], "no model. Found: net.tflite"),
        (["net.pt/"], "no model. Found: net.pt/"),
        (["net.xml"], "only a part of a model. Found: net.xml. Expected one of: OpenVINO: *.xml and *.bin."),
        (["net.bin"], "only a part of a model. Found: net.bin. net.bin: beside its .xml it is a model of OpenVINO; "),
        (
            ["saved_model.pb"],
            "only a part of a model. Found: saved_model.pb. Expected one of: TensorFlow: saved_model.pb",
        ),
        (["variables/"], "only a part of a model. Found: variables/"),
        (
            ["graph_meta.json"],
            "only a part of a model. Found: graph_meta.json. Expected one of: TensorFlow frozen graph",
        ),
        (["net.meta"], "only a part of a model. Found: net.meta. Expected one of: TensorFlow checkpoint: *.meta and"),
        (
            ["net.index", "net.data-00000-of-00001"],
            "only a part of a model. Found: net.data-00000-of-00001, net.index.",
        ),
        (["a.pt", "b.pt"], "more than one model. Found: a.pt, b.pt. Expected one of: TorchScript: *.pt or *.pth."),
        (["a.xml", "a.bin", "b.xml"], "more than one model. Found: a.bin, a.xml, b.xml."),
        (
            ["net.prototxt"],
            "only a part of a model. Found: net.prototxt. Expected one of: Caffe: *.prototxt and *.caffe",
        ),
        (["net.caffemodel"], "only a part of a model. Found: net.caffemodel. Expected one of: Caffe: *.prototxt and"),
        (["a.pb", "b.pb", "graph_meta.json"], "more than one model. Found: a.pb, b.pb, graph_meta.json."),
        (
            ["a-1.meta", "a-1.index", "a-2.meta", "a-2.index"],
            "more than one model. Found: a-1.index, a-1.meta, a-2.ind",
        ),
        (
            ["a.keras", "a.h5"],
            "more than one model. Found: a.h5, a.keras. Expected one of: Keras: *.keras or *.h5 or *.hdf5.",
        ),
        (["model.json", "model.txt"], "more than one model. Found: model.json, model.txt. Expected one of: XGBoost: "),
        (["labels.txt", "config.json", "0001.txt"], "no model. Found: 0001.txt, config.json, labels.txt."),
        (["a.onnx", "b.onnx"], "more than one model. Found: a.onnx, b.onnx. Expected one of: ONNX Runtime: *.onnx."),
        (
            ["a.pt", "a.pt2"],
            "more than one model. Found: a.pt, a.pt2. Expected one of: TorchScript: *.pt or *.pth; tor",
        ),
        (["a.onnx", "b.pt"], "more than one model. Found: a.onnx, b.pt."),
        (["a.xml", "a.bin", "b.pt"], "more than one model. Found: a.bin, a.xml, b.pt."),
    ],
)
def test_a_folder_without_exactly_one_model_is_refused(tmp_path, names, problem):
    folder = make(tmp_path, names)
    with pytest.raises(ModelError) as caught:
        detect(folder)
    assert str(folder) in str(caught.value)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("forest.pkl", "skops.io.dump"),
        ("forest.joblib", "skops.io.dump"),
        ("net.tflite", "examples/engines/litert"),
        ("model.safetensors", "cluster-serving-init --from"),
        ("pytorch_model.bin", "cluster-serving-init --from"),
        ("epoch=3.ckpt", "torch.export.save"),
        ("weights.npz", "load it in a handler"),
        ("cc.en.300.bin", "fastText"),
        ("forest.joblib.gz", "skops.io.dump"),
        ("model.onnx.gz", "unpack it"),
        ("inference.pdiparams", "paddle2onnx"),
        ("net.pte", "torch.export.save"),
        ("net.nemo", "model.export('model.onnx')"),
        ("net.param", "its converter was given"),
    ],
)
def test_a_model_that_no_engine_serves_has_a_way_out(tmp_path, name, way):
    (tmp_path / name).touch()
    with pytest.raises(ModelError) as error:
        detect(tmp_path)
    assert f"{name}: " in str(error.value) and way in str(error.value)


def test_a_folder_of_many_files_is_not_listed_in_full(tmp_path):
    with pytest.raises(ModelError, match=r"f19\.txt and 30 more"):
        detect(make(tmp_path, [f"f{number:02}.txt" for number in range(50)]))


def test_a_missing_folder_or_a_file_is_refused(tmp_path):
    with pytest.raises(ModelError, match="does not exist"):
        detect(tmp_path / "none")
    file = tmp_path / "net.pt"
    file.touch()
    with pytest.raises(ModelError, match=r"is a file; modelPath has to name the folder"):
        detect(file)


def test_a_missing_engine_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(EngineMissing, match=r"pip install 'cluster-serving\[torch\]'"):
        check(ModelOptions(str(make(tmp_path, ["net.pt"]))))


def test_checking_a_folder_imports_no_engine(tmp_path):
    make(tmp_path, FOLDERS["OpenVINO"])
    code = (
        "import sys; from cluster_serving.job.models import check\n"
        "from cluster_serving.job.options import ModelOptions\n"
        "print(check(ModelOptions(sys.argv[1])).format.engine, 'openvino' in sys.modules, 'cv2' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["OpenVINO", "False", "False"]
