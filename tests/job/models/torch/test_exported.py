from __future__ import annotations

import io
import json
import os
import zipfile

import numpy as np
import pytest
import torch

from cluster_serving.job.models import load_model
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from tests.support.payloads import model_zoo


def load(folder, **options):
    return load_model(ModelOptions(str(folder), **options))


class Two(torch.nn.Module):
    def forward(self, a, b):
        return {"sum": a + b, "half": (b / 2).to(torch.bfloat16)}


class Halves(torch.nn.Module):
    def forward(self, x):
        return x / 2


class Explosive:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    example = torch.zeros(2, 3), torch.zeros(2, 3)
    batch = {0: torch.export.Dim("batch")}
    program = torch.export.export(Two(), example[:1], {"b": example[1]}, dynamic_shapes={"a": batch, "b": batch})
    torch.export.save(program, folder / "model.pt2")
    return folder


def test_inputs_of_bfloat16_are_given_as_float32(tmp_path):
    example = torch.zeros(2, 3, dtype=torch.bfloat16)
    program = torch.export.export(Halves(), (example,), dynamic_shapes={"x": {0: torch.export.Dim("batch")}})
    torch.export.save(program, tmp_path / "model.pt2")
    model = load(tmp_path)
    assert model.inputs[0].dtype == model.outputs[0].dtype == "float32"
    np.testing.assert_array_equal(model.predict([np.ones((4, 3), "f4")])[0], np.full((4, 3), 0.5))


def test_names_dtypes_and_shapes_are_those_of_the_export(two):
    model = load(two)
    assert list(map(str, model.inputs)) == ["a: float32[?, 3]", "b: float32[?, 3]"]
    assert list(map(str, model.outputs)) == ["sum: float32[?, 3]", "half: float32[?, 3]"]
    a, b = np.ones((4, 3), np.float32), np.full((4, 3), 3, np.float32)
    total, half = model.predict([a, b])
    np.testing.assert_array_equal(total, a + b)
    np.testing.assert_array_equal(half, b / 2)
    (half,) = load(two, inputs=("b", "a"), outputs=("half",)).predict([b, a])
    np.testing.assert_array_equal(half, b / 2)
    with pytest.raises(ModelError, match=r"needs every one of its inputs, once: a: float32\[\?, 3\], b: "):
        load(two, inputs=("a",))


def test_a_fixed_batch_is_cut_and_padded_to(tmp_path):
    model_zoo.save_exported(tmp_path, torch.nn.Softmax(1), torch.zeros(2, 3))
    model = load(tmp_path)
    for batch in (1, 2, 5):
        x = np.random.default_rng(0).random((batch, 3), np.float32)
        np.testing.assert_allclose(model.predict([x])[0], torch.from_numpy(x).softmax(1).numpy(), rtol=1e-6)


def rewrite(folder, change):
    """Change the members of the archive, a dict of name → content."""
    path = folder / "model.pt2"
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def pickled(trace):
    file = io.BytesIO()
    torch.save(Explosive(trace), file)
    return file.getvalue()


def explode_in_sample(members, trace):
    members[next(name for name in members if name.endswith("sample_inputs/model.pt"))] = pickled(trace)


def explode_in_weights(members, trace):
    config = next(name for name in members if name.endswith("weights_config.json"))
    entries = json.loads(members[config])
    first = next(iter(entries["config"].values()))
    first["use_pickle"] = True
    members[config] = json.dumps(entries).encode()
    members[f"{config.rpartition('/')[0]}/{first['path_name']}"] = pickled(trace)


def explode_in_the_old_layout(members, trace):
    members.clear()
    members.update({"version": b"8.1", "serialized_state_dict.json": pickled(trace)})


@pytest.mark.parametrize("explode", [explode_in_sample, explode_in_weights, explode_in_the_old_layout])
def test_a_pickle_inside_is_refused_and_never_loaded(tmp_path, explode):
    folder, trace = tmp_path / "model", tmp_path / "trace"
    model_zoo.save_exported(folder, torch.nn.Linear(3, 2), torch.zeros(2, 3))
    rewrite(folder, lambda members: explode(members, trace))
    with pytest.raises(ModelError, match=r"model\.pt2 holds the pickle .* needs allowPickle: true"):
        load(folder)
    assert not trace.exists()


def test_a_program_of_a_newer_pytorch_is_told_from_one_that_is_damaged(tmp_path):
    model_zoo.save_exported(tmp_path, torch.nn.Linear(3, 2), torch.zeros(2, 3))

    def without_weights(version):
        def change(members):
            program = next(name for name in members if name.endswith("models/model.json"))
            members[program] = json.dumps(json.loads(members[program]) | {"torch_version": version}).encode()
            for name in [name for name in members if "/weights/" in name]:
                del members[name]

        return change

    rewrite(tmp_path, without_weights("99.1.0+cpu"))
    with pytest.raises(ModelError, match=r"is written by PyTorch 99\.1\.0, and .* pip install 'torch>=99\.1\.0'"):
        load(tmp_path)
    rewrite(tmp_path, without_weights(torch.__version__))
    with pytest.raises(ModelError, match=r"cannot load .*model\.pt2: "):
        load(tmp_path)


def test_inputs_that_are_no_tensors_are_refused(tmp_path):
    class Scaled(torch.nn.Module):
        def forward(self, x, factor: int):
            return x * factor

    model_zoo.save_exported(tmp_path, Scaled(), torch.zeros(2, 3), 2)
    with pytest.raises(ModelError, match="an input of the exported program is 2 and not a Tensor"):
        load(tmp_path)


@pytest.mark.parametrize("training", [True, False])
def test_a_normalization_that_computes_as_in_training_is_named(tmp_path, training):
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).train(training)
    batch = torch.export.Dim("batch", min=2) if training else torch.export.Dim("batch")
    program = torch.export.export(module, (torch.zeros(2, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "model.pt2")
    assert ("layer '1' computes as in training" in load(tmp_path).one_by_one) == training


class Centering(torch.nn.Module):
    def forward(self, x):
        return 2 * x.sub_(1)


def test_an_input_that_the_program_writes_to_stays_as_it_is(tmp_path):
    batch = {0: torch.export.Dim("batch")}
    program = torch.export.export(Centering(), (torch.ones(3, 2),), dynamic_shapes=(batch,))
    torch.export.save(program, tmp_path / "model.pt2")
    model = load(tmp_path)
    x = np.ones((1, 2), np.float32)
    assert [model.predict([x])[0].tolist() for _ in range(2)] == [[[0, 0]]] * 2
    assert x.tolist() == [[1, 1]]
    assert model.one_by_one == ""
