from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import model_zoo

SAVERS: dict[str, Callable[[Path], None]] = {
    "OpenVINO": model_zoo.save_openvino_digits,
    "TensorFlow": model_zoo.save_savedmodel_digits,
    "TensorFlow frozen graph": model_zoo.save_frozen_graph_digits,
    "TensorFlow checkpoint": model_zoo.save_checkpoint_digits,
    "Keras": model_zoo.save_keras_digits,
    "TorchScript": model_zoo.save_torchscript_digits,
    "torch.export": model_zoo.save_exported_digits,
    "ONNX Runtime": model_zoo.save_onnx_digits,
    "Caffe": model_zoo.save_caffe_digits,
    "BigDL": model_zoo.save_bigdl_digits,
}


@pytest.fixture(scope="session")
def digit_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Engine → folder of the digits model."""
    root = tmp_path_factory.mktemp("digits")
    for engine, save in SAVERS.items():
        save(root / engine)
    return {engine: root / engine for engine in SAVERS}


@pytest.fixture(params=SAVERS)
def digits_folder(request: pytest.FixtureRequest, digit_folders: dict[str, Path]) -> Path:
    """Folder of the digits model, once per engine."""
    return digit_folders[request.param]
