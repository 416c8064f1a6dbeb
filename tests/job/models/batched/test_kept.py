"""Proofs that are kept: a model is proven once, and again if anything has changed that a proof depends on."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
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


@pytest.fixture
def save(tmp_path):
    """Saves a TorchScript model whose inputs only requests tell; returns its options."""
    torch = pytest.importorskip("torch")

    def save(compute):
        model_zoo.save_torchscript(tmp_path / "model", compute(torch), torch.ones(2, 4))
        return ModelOptions(str(tmp_path / "model"))

    return save


def kept_by(tmp_path):
    (file,) = (tmp_path / "cache" / "proofs").glob("*.json")
    return json.loads(file.read_text())


def rows(count, size=4):
    return [np.random.default_rng(count).normal(0, 1, (count, size)).astype(np.float32)]


def test_a_model_is_proven_once(proofs, folder, tmp_path):
    options = ModelOptions(str(folder), input_shapes=((4,),))
    first, second = load_model(options), load_model(replace(options, slot=3))
    assert proofs == [1]
    x = np.random.default_rng(0).normal(0, 1, (5, 4)).astype(np.float32)
    np.testing.assert_array_equal(first.predict([x]), second.predict([x]))
    assert second.one_by_one == first.one_by_one == ""
    assert (second.inputs, second.outputs) == (first.inputs, first.outputs)
    assert kept_by(tmp_path)[""]["problem"] == ""


def test_what_a_proof_depends_on_is_proven_again(proofs, save):
    options = replace(save(lambda torch: torch.nn.Softmax(0)), input_shapes=((4,),))
    load_model(options)
    load_model(options, most=7)
    load_model(options, most=70)
    load_model(replace(options, thread_per_model=2))
    save(lambda torch: torch.nn.Softmin(0))
    load_model(options)
    assert len(proofs) == 4


def test_a_damaged_file_is_no_proof(proofs, save, tmp_path):
    options = replace(save(lambda torch: torch.nn.Softmax(0)), input_shapes=((4,),))
    load_model(options)
    (file,) = (tmp_path / "cache" / "proofs").glob("*.json")
    for damaged in ("", "3", '{"": 3}', '{"": {"places": 3}}'):
        file.write_text(damaged)
        load_model(options)
    assert len(proofs) == 5


def test_without_a_folder_a_model_is_proven_each_time(proofs, save, monkeypatch):
    monkeypatch.setenv("CLUSTER_SERVING_CACHE", "/proc/none")
    options = replace(save(lambda torch: torch.nn.Softmax(0)), input_shapes=((4,),))
    load_model(options)
    load_model(options)
    assert len(proofs) == 2


def test_what_requests_prove_holds_for_other_slots_and_starts(proofs, save):
    options = save(lambda torch: torch.nn.Linear(4, 2))
    first, second = load_model(options), load_model(replace(options, slot=1))
    assert (len(proofs), first.one_by_one) == (0, "")
    answers = [model.predict(rows(5)) for model in (first, second, load_model(options))]
    assert len(proofs) == 1
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_array_equal(answers[0], answers[2])
    assert (second.inputs, second.outputs) == (first.inputs, first.outputs)


def test_slots_that_get_their_first_requests_at_once_prove_a_model_once(proofs, save, tmp_path):
    options = save(lambda torch: torch.nn.Linear(4, 2))
    models = [load_model(replace(options, slot=slot)) for slot in range(4)]
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda model: model.predict(rows(5)), models))
    assert len(proofs) == 1
    assert all(np.array_equal(answers[0], other) for other in answers)
    assert kept_by(tmp_path)["2"]["problem"] == ""


def test_a_dependence_that_requests_show_holds_for_other_slots_and_starts(proofs, save):
    options = save(lambda torch: torch.nn.Softmax(0))
    x = rows(3)
    for _ in range(2):
        model = load_model(options)
        np.testing.assert_array_equal(model.predict(x), [np.ones((3, 4), np.float32)])
        assert model.one_by_one.startswith("output 'output' of a record depends on the others in its batch")
    assert len(proofs) == 1


def test_what_later_requests_refute_no_slot_proves_again(proofs, save, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    # It would tell before any request.
    monkeypatch.setattr("cluster_serving.job.models.torch.script.TorchScriptModel.graph", lambda self: None)

    class Sum(torch.nn.Module):
        def forward(self, x):
            return x[:, :3] if bool((x == 77.5).all()) else x.sum(1)

    model_zoo.save_torchscript(tmp_path / "model", Sum())
    options = ModelOptions(str(tmp_path / "model"))
    first, second = load_model(options), load_model(options)
    assert first.predict(rows(2))[0].shape == (2,)
    assert first.one_by_one == ""
    first.predict([np.full((2, 4), 77.5, np.float32)])
    assert first.one_by_one == kept_by(tmp_path)["2"]["problem"] == "the sizes of output 'output' follow the data"
    second.predict(rows(2))
    assert second.one_by_one == first.one_by_one
    # A slot that has proven it meanwhile.
    kept = first._kept
    kept.write((2,), replace(kept.peek((2,)), problem=""), first)
    assert kept_by(tmp_path)["2"]["problem"] == first.one_by_one


def test_the_watch_wins_over_a_kept_proof(proofs, save):
    options = save(lambda torch: torch.nn.Linear(4, 2))
    load_model(options).predict(rows(5))
    model = load_model(options)
    model.end_sharing("the watch found a difference")
    x = rows(5)
    alone = [model.predict([x[0][at : at + 1]])[0] for at in range(5)]
    np.testing.assert_array_equal(model.predict(x)[0], np.concatenate(alone))
    assert model.one_by_one == "the watch found a difference"
    assert len(proofs) == 1


def test_trials_of_a_start_that_find_nothing_are_not_made_again(proofs, tmp_path, monkeypatch):
    monkeypatch.setattr(batched_model, "prove", lambda *args, **options: proofs.append(1))
    torch = pytest.importorskip("torch")
    model_zoo.save_torchscript(tmp_path / "model", torch.nn.Linear(4, 2), torch.ones(2, 4))
    options = ModelOptions(str(tmp_path / "model"), input_shapes=((4,),))
    load_model(options)
    load_model(options)
    assert len(proofs) == 1
