"""Proofs that are kept: a model is proven once, and again if anything has changed that a proof depends on."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from cluster_serving.job.models import load_model
from cluster_serving.job.models.batched import model as batched_model
from cluster_serving.job.options import ModelOptions
from tests.support.payloads import model_zoo


@pytest.fixture
def proofs(monkeypatch, tmp_path):
    """Proofs that were made, of as many models."""
    monkeypatch.setenv("CLUSTER_SERVING_CACHE", str(tmp_path / "cache"))
    made = []
    prove = batched_model.prove

    def counting(*args, **options):
        made.append(1)
        return prove(*args, **options)

    monkeypatch.setattr(batched_model, "prove", counting)
    return made


@pytest.fixture
def folder(tmp_path):
    torch = pytest.importorskip("torch")
    model_zoo.save_torchscript(tmp_path / "model", torch.nn.Linear(4, 2), torch.ones(2, 4))
    return tmp_path / "model"


def test_a_model_is_proven_once(proofs, folder, tmp_path):
    options = ModelOptions(str(folder), input_shapes=((4,),))
    first, second = load_model(options), load_model(replace(options, slot=3))
    assert proofs == [1]
    x = np.random.default_rng(0).normal(0, 1, (5, 4)).astype(np.float32)
    np.testing.assert_array_equal(first.predict([x]), second.predict([x]))
    assert second.one_by_one == first.one_by_one == ""
    assert (second.inputs, second.outputs) == (first.inputs, first.outputs)
    (file,) = (tmp_path / "cache" / "proofs").iterdir()
    assert json.loads(file.read_text())["problem"] == ""


def test_what_a_proof_depends_on_is_proven_again(proofs, folder):
    torch = pytest.importorskip("torch")
    options = ModelOptions(str(folder), input_shapes=((4,),))
    load_model(options)
    load_model(options, most=7)
    load_model(options, most=70)
    load_model(replace(options, thread_per_model=2))
    model_zoo.save_torchscript(folder, torch.nn.Linear(4, 2), torch.ones(2, 4))
    load_model(options)
    assert len(proofs) == 4


def test_a_damaged_file_is_no_proof(proofs, folder, tmp_path):
    options = ModelOptions(str(folder), input_shapes=((4,),))
    load_model(options)
    (file,) = (tmp_path / "cache" / "proofs").iterdir()
    for damaged in ("", "{}", '{"places": 3}'):
        file.write_text(damaged)
        load_model(options)
    assert len(proofs) == 4


def test_without_a_folder_a_model_is_proven_each_time(proofs, folder, monkeypatch):
    monkeypatch.setenv("CLUSTER_SERVING_CACHE", "/proc/none")
    options = ModelOptions(str(folder), input_shapes=((4,),))
    load_model(options)
    load_model(options)
    assert len(proofs) == 2
