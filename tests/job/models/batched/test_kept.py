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


def test_a_start_keeps_no_proof_of_a_graph_that_its_requests_prove(proofs, tmp_path):
    """Random graphs have too many nodes for the model, unless a node is taken for a record."""
    helper = pytest.importorskip("onnx").helper
    numbers = [
        helper.make_tensor("first", 7, [], [0]),
        helper.make_tensor("last", 7, [1], [1]),
        helper.make_tensor("sizes", 1, [5], [1.0] * 5),
    ]
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["count"]),
        helper.make_node("Gather", ["sizes", "count"], ["scale"]),
        helper.make_node("Unsqueeze", ["bias", "last"], ["column"]),
        helper.make_node("Add", ["x", "column"], ["moved"]),
        helper.make_node("Mul", ["moved", "scale"], ["y"]),
        helper.make_node("Gather", ["edges", "first"], ["source"]),
        helper.make_node("Gather", ["y", "source"], ["sent"]),
        helper.make_node("Unsqueeze", ["weights", "last"], ["weight"]),
        helper.make_node("Mul", ["sent", "weight"], ["messages"]),
    ]
    shapes = {"x": (1, ["nodes", 4]), "bias": (1, ["nodes"]), "edges": (7, [2, "edges"]), "weights": (1, ["edges"])}
    inputs = [helper.make_tensor_value_info(name, *of) for name, of in shapes.items()]
    outputs = [helper.make_tensor_value_info("messages", 1, ["edges", 4])]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, numbers)
    (tmp_path / "model").mkdir()
    opset = [helper.make_opsetid("", 17)]
    (tmp_path / "model" / "model.onnx").write_bytes(
        helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    )
    options = ModelOptions(str(tmp_path / "model"))
    x, edges = rows(2, 16)[0].reshape(2, 4, 4), np.array([[[0, 1, 3], [1, 2, 2]], [[3, 3, 3], [0, 1, 2]]])
    for model in (load_model(options), load_model(options)):
        (answers,) = model.predict([x, np.ones((2, 4), np.float32), edges, np.ones((2, 3), np.float32)])
        np.testing.assert_array_equal(answers, [one[at[0]] + 1 for one, at in zip(x, edges, strict=True)])
        assert model.one_by_one == "its inputs have no batch dimension"
