"""The distributions that a job brings to a cluster."""

import importlib
import sys

import pytest

from cluster_serving.launcher.shipping import distributions


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs distributions, of name → requirements, in an environment that has no others."""
    # Imported by `needed`, and not found any more below.
    importlib.import_module("packaging.requirements")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    def installed(**requirements):
        for name, needed in requirements.items():
            folder = tmp_path / f"{name}-1.0.dist-info"
            folder.mkdir()
            lines = ["Metadata-Version: 2.1", f"Name: {name.replace('_', '-')}", "Version: 1.0"]
            (folder / "METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {one}" for one in needed), ""]))

    return installed


def shipped(*extras):
    return [found.name for found in distributions.needed(extras)]


def test_what_is_not_installed_is_left_out(installed):
    installed(cluster_serving=["numpy", 'onnxruntime; extra == "onnx"'], numpy=["gone"])
    assert shipped("onnx") == ["numpy"]


@pytest.mark.parametrize(
    ("extra", "named", "build", "libraries"),
    [
        ("onnx", "onnxruntime", "onnxruntime_gpu", "cudnn"),
        ("tensorflow", "tensorflow-cpu", "tensorflow", "and-cuda"),
    ],
)
def test_the_build_of_an_engine_for_gpus_comes_with_its_libraries(installed, extra, named, build, libraries):
    installed(
        cluster_serving=[f'{named}; extra == "{extra}"'],
        nvidia_cudnn=[],
        **{build: [f'nvidia-cudnn; extra == "{libraries}"']},
    )
    assert shipped(extra) == ["nvidia-cudnn", build.replace("_", "-")]
