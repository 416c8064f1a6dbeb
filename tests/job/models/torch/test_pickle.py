from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from cluster_serving.job.models import load_model
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError


def load(folder, **options):
    return load_model(ModelOptions(str(folder), allow_pickle=True, **options))


class Masked(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.dropout = torch.nn.Linear(4, 2), torch.nn.Dropout()

    def forward(self, x, mask=None):
        y = self.dropout(self.linear(x))
        return {"y": y if mask is None else y * mask}


@pytest.fixture
def module(monkeypatch):
    # Tests have no module name of their own to import them by.
    monkeypatch.setattr(Masked, "__module__", "masked_module")
    monkeypatch.setitem(sys.modules, "masked_module", sys.modules[__name__] if __name__ in sys.modules else _module())
    return Masked()


def _module():
    module = type(sys)("masked_module")
    module.Masked = Masked
    return module


@pytest.mark.parametrize("suffix", [".pt", ".pth"])
@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickled_module_is_served_if_that_is_allowed(tmp_path, module, suffix, zipped):
    torch.save(module, tmp_path / f"model{suffix}", _use_new_zipfile_serialization=zipped)
    model = load(tmp_path, input_shapes=((4,),))
    assert model.engine == "PyTorch"
    assert list(map(str, model.inputs)) == ["x: float32[?, 4]"]
    for batch in (1, 3, 32):
        x = np.random.default_rng(batch).random((batch, 4), np.float32)
        expected = module.eval()(torch.from_numpy(x))["y"].detach().numpy()
        np.testing.assert_allclose(model.predict([x])[0], expected, rtol=1e-5, atol=1e-6)
    assert [spec.name for spec in model.outputs] == ["y"]
    half = np.full((3, 2), 0.5, np.float32)
    masked = load(tmp_path, inputs=("x", "mask")).predict([x[:3], half])[0]
    np.testing.assert_allclose(masked, expected[:3] / 2, rtol=1e-5, atol=1e-6)
    with pytest.raises(ModelError, match="also needs the input 'x'"):
        load(tmp_path, inputs=("mask",))


def test_a_state_dict_is_refused(tmp_path):
    torch.save(torch.nn.Linear(1, 1).state_dict(), tmp_path / "model.pt")
    with pytest.raises(ModelError, match="holds weights without the model"):
        load(tmp_path)


def test_something_else_is_refused(tmp_path):
    torch.save([1, 2], tmp_path / "model.pt")
    with pytest.raises(ModelError, match=r"holds a list; it has to be a torch\.nn\.Module"):
        load(tmp_path)


def test_a_class_that_cannot_be_imported_is_named(tmp_path, module):
    torch.save(module, tmp_path / "model.pt")
    del sys.modules["masked_module"]
    with pytest.raises(ModelError, match="cannot be imported here .*masked_module"):
        load(tmp_path)


def test_garbage_is_refused(tmp_path):
    (tmp_path / "model.pt").write_bytes(b"garbage" * 100)
    with pytest.raises(ModelError, match="is not a PyTorch model"):
        load(tmp_path)


class ByPosition(torch.nn.Module):
    def forward(self, x, /, scale):
        return x * scale


def test_an_argument_without_a_name(tmp_path, monkeypatch):
    holder = type(sys)("by_position")
    holder.ByPosition = ByPosition
    monkeypatch.setattr(ByPosition, "__module__", "by_position")
    monkeypatch.setitem(sys.modules, "by_position", holder)
    torch.save(ByPosition(), tmp_path / "model.pt")
    model = load(tmp_path)
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(model.predict([x, 2 * x])[0], 2 * x)
