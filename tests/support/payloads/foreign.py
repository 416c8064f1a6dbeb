"""Folders and archives of other servers, with real models: of flowers by their four sizes, and of texts."""

from __future__ import annotations

import json
import shutil
import textwrap
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.payloads import model_zoo, tables, texts

FLOWER = [5.1, 3.5, 1.4, 0.2]
"""A record: sizes in centimetres."""


@cache
def weights() -> tuple[np.ndarray, np.ndarray]:
    """Matrix and bias of a classifier of flowers: float32 (4, 3) and (3,)."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(max_iter=500).fit(*tables.iris())
    return model.coef_.T.astype("f4"), model.intercept_.astype("f4")


def probabilities(x: np.ndarray) -> np.ndarray:
    """The same classifier in numpy: (n, 4) → (n, 3)."""
    matrix, bias = weights()
    odds = np.exp(np.asarray(x) @ matrix + bias)
    return odds / odds.sum(axis=1, keepdims=True)


def flowers_module() -> Any:
    """The same classifier in PyTorch, with a softmax."""
    import torch

    layer = torch.nn.Linear(4, 3)
    layer.weight.data, layer.bias.data = (torch.from_numpy(array.T.copy()) for array in weights())
    return torch.nn.Sequential(layer, torch.nn.Softmax(dim=1)).eval()


def save_flowers_script(folder: Path) -> Path:
    """TorchScript: float32 [?, 4] → [?, 3]."""
    import torch

    model_zoo.save_torchscript(folder, flowers_module(), torch.zeros(2, 4))
    return folder / "model.pt"


def save_flowers_exported(folder: Path) -> None:
    """torch.export, in the folder `data`: float32 [?, 4] → [?, 3]."""
    import torch

    batch = {0: torch.export.Dim("batch")}
    model_zoo.save_exported(folder / "data", flowers_module(), torch.zeros(2, 4), dynamic_shapes=(batch,))


def save_flowers_onnx(folder: Path) -> None:
    """ONNX: `x` float32 [?, 4] → `probabilities` [?, 3]."""
    from onnx import helper

    matrix, bias = weights()
    nodes = [
        helper.make_node("Gemm", ["x", "matrix", "bias"], ["z"]),
        helper.make_node("Softmax", ["z"], ["probabilities"]),
    ]
    ports = {"x": ("FLOAT", ["n", 4])}, {"probabilities": ("FLOAT", ["n", 3])}
    model_zoo.save_onnx(folder, nodes, *ports, {"matrix": matrix, "bias": bias})


def save_flowers_saved_model(folder: Path) -> None:
    """SavedModel: `x` float32 [?, 4] → `probabilities` [?, 3]."""
    import tensorflow as tf

    matrix, bias = (tf.Variable(array) for array in weights())

    def answer(x):
        return {"probabilities": tf.nn.softmax(x @ matrix + bias)}

    model_zoo.save_savedmodel(folder, answer, tf.TensorSpec([None, 4], tf.float32, "x"), track=[matrix, bias])


def archive(path: Path, files: dict[str, Path | str | bytes], **model: str) -> Path:
    """Write an archive as torch-model-archiver does: its files at the top, and a manifest."""
    manifest = {
        "createdOn": "26/11/2026 12:00:00",
        "runtime": "python",
        "model": {"modelName": path.stem, "handler": "base_handler", "modelVersion": "1.0"} | model,
        "archiverVersion": "0.12.0",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(name, content.read_bytes() if isinstance(content, Path) else content)
        packed.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest, indent=2))
    return path


def save_torchserve(folder: Path) -> Path:
    """A model store with the archive `iris.mar`."""
    script = save_flowers_script(folder / "made")
    settings = "minWorkers: 1\nmaxWorkers: 1\nbatchSize: 16\nmaxBatchDelay: 20\nresponseTimeout: 60\n"
    files = {"model.pt": script, "flowers.py": "raise SystemExit('run')\n", "model-config.yaml": settings}
    named = {"serializedFile": "model.pt", "handler": "flowers.py:handle", "configFile": "model-config.yaml"}
    made = archive(folder / "model_store" / "iris.mar", files, **named)
    shutil.rmtree(folder / "made")
    return made


TRITON = """
    # A model of flowers.
    name: "iris"
    platform: "onnxruntime_onnx"
    max_batch_size: 16
    input [ { name: "x", data_type: TYPE_FP32, dims: [ 4 ] } ]
    output [
      {
        name: "probabilities"
        data_type: TYPE_FP32
        dims: [ 3 ]
      }
    ]
    instance_group [ { count: 1 kind: KIND_CPU } ]
    dynamic_batching { max_queue_delay_microseconds: 5000 }
    version_policy: { latest { num_versions: 1 } }
    optimization { graph { level: 1 } }
"""


def save_triton(folder: Path) -> Path:
    """A repository with the model `iris`, in versions 1 and 2."""
    model = folder / "model_repository" / "iris"
    for version in ("1", "2"):
        save_flowers_onnx(model / version)
    (model / "config.pbtxt").write_text(textwrap.dedent(TRITON))
    return model


def save_tensorflow_serving(folder: Path) -> Path:
    """A base path with version 1, which has a request to warm up."""
    base = folder / "models" / "iris"
    save_flowers_saved_model(base / "1")
    (base / "1" / "assets.extra").mkdir()
    (base / "1" / "assets.extra" / "tf_serving_warmup_requests").write_bytes(b"request")
    return base


MLMODEL = """
    artifact_path: model
    flavors:
      python_function:
        data: model.ubj
        env:
          conda: conda.yaml
          virtualenv: python_env.yaml
        loader_module: mlflow.xgboost
        python_version: 3.11.9
      xgboost:
        code: null
        data: model.ubj
        model_class: xgboost.sklearn.XGBClassifier
        model_format: ubj
        xgb_version: 3.4.1
    mlflow_version: 3.18.0
    model_uuid: 0f1e2d3c4b5a69788796a5b4c3d2e1f0
    signature:
      inputs: '[{"type": "double", "name": "sepal_length", "required": true}]'
      outputs: '[{"type": "long", "required": true}]'
    utc_time_created: '2026-11-26 12:00:00.000000'
"""


def mlflow(folder: Path, text: str, *names: str) -> Path:
    """A folder of MLflow with an `MLmodel` of this text, and files beside the model as MLflow writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "MLmodel").write_text(textwrap.dedent(text))
    for name in names or ("conda.yaml", "python_env.yaml", "requirements.txt"):
        (folder / name).write_text("# of MLflow\n")
    return folder


def flowers_booster() -> Any:
    """A classifier of XGBoost whose features have the names of `tables.NAMES`."""
    import xgboost

    x, y = tables.iris()
    return xgboost.XGBClassifier(n_estimators=8, max_depth=3, n_jobs=1).fit(tables.frame(x), y)


def save_mlflow(folder: Path) -> Path:
    """A model of XGBoost as `mlflow.xgboost.save_model` writes it."""
    made = mlflow(folder / "mlruns" / "iris", MLMODEL)
    flowers_booster().save_model(made / "model.ubj")
    return made


def save_hugging_face(folder: Path) -> Path:
    """A folder of the Hub with a model that embeds texts: ONNX in a folder of its own, and sentence-transformers."""
    made = folder / "reader"
    texts.save_model(made / "onnx")
    texts.save_tokenizer(made)
    (made / "1_Pooling").mkdir()
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [
        {
            "idx": at,
            "name": f"{at}",
            "path": f"{at}_{kind}" if at else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for at, kind in enumerate(kinds)
    ]
    for name, content in {
        "config.json": {"architectures": ["BertModel"], "model_type": "bert", "hidden_size": texts.SIZE},
        "modules.json": modules,
        "1_Pooling/config.json": {"pooling_mode_mean_tokens": True},
        "sentence_bert_config.json": {"max_seq_length": 16},
        "tokenizer_config.json": {"model_max_length": 32},
    }.items():
        (made / name).write_text(json.dumps(content))
    (made / "model.safetensors").write_bytes(b"weights of PyTorch")
    return made
