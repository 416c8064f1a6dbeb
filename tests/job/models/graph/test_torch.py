"""What the graphs of exported programs prove about their rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from cluster_serving.job.models import load_model
from cluster_serving.job.models.batched import influence
from cluster_serving.job.models.graph.torch.reader import read
from cluster_serving.job.models.graph.walk import Finding, follow
from cluster_serving.job.options import ModelOptions

pytestmark = [
    pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning"),
    pytest.mark.filterwarnings("ignore:.isinstance.treespec:FutureWarning"),
]

N = torch.export.Dim.DYNAMIC
functional = nn.functional


class Of(nn.Module):
    """A module of a function, with other modules and a state."""

    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        self.register_buffer("seen", torch.zeros(4))
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x):
        return self.function(self, x)


def exported(function, example=(2, 4), dims=(0,), **modules):
    torch.manual_seed(0)
    module = function if isinstance(function, nn.Module) else Of(function, **modules).eval()
    x = torch.rand(example) if isinstance(example, tuple) else example
    return torch.export.export(module, (x,), dynamic_shapes=({dim: N for dim in dims},))


def found(program, name="y"):
    module = program.module()
    inputs = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            inputs[node.name] = [size if isinstance(size, int) else str(size) for size in node.meta["val"].shape]
    findings = follow(read(module, inputs, ["y"]), dict.fromkeys(inputs, 0))
    return findings["y"]


def saved(folder, program):
    torch.export.save(program, folder / "model.pt2")
    return load_model(ModelOptions(str(folder)))


class Block(nn.Module):
    """Two convolutions and what goes past them, with operators that write in place."""

    def __init__(self, channels):
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(inplace=True)
        )
        self.second = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels))

    def forward(self, x):
        y = self.second(self.first(x))
        y += x
        return functional.relu(y, inplace=True)


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU6(), nn.MaxPool2d(2, ceil_mode=True))
        self.blocks = nn.Sequential(Block(8), nn.Conv2d(8, 8, 3, groups=8, padding="same"), nn.Hardswish(), Block(8))
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Hardsigmoid())
        self.head = nn.Sequential(nn.Dropout(), nn.Linear(8 * 9, 5))

    def forward(self, x):
        x = self.blocks(self.stem(x))
        x = functional.interpolate(x * self.squeeze(x), (3, 3), mode="bilinear")
        return self.head(x.flatten(1)).softmax(-1)


class Encoder(nn.Module):
    """An encoder of words, with their positions, a mask, and a vector in front."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 8)
        self.places = nn.Embedding(32, 8)
        self.first = nn.Parameter(torch.rand(1, 1, 8))
        self.keys = nn.Linear(8, 24)
        self.norm = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.layers = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True), 1, enable_nested_tensor=False
        )

    def forward(self, ids):
        mask = (ids > 0)[:, None, None, :]
        with torch.no_grad():
            places = torch.arange(ids.shape[1])
        x = self.norm(self.words(ids) + self.places(places)[None])
        q, k, v = (
            part.view(ids.shape[0], ids.shape[1], 2, 4).transpose(1, 2) for part in self.keys(x).chunk(3, dim=-1)
        )
        y = functional.scaled_dot_product_attention(q, k, v, mask)
        x = x + y.transpose(1, 2).reshape(ids.shape[0], -1, 8)
        x = torch.cat([self.first.expand(ids.shape[0], -1, -1), x], 1)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.layers(x)[:, 0]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(12, 5)

    def forward(self, x):
        x, _ = self.lstm(x)
        x, last = self.gru(x.transpose(0, 1))
        return torch.cat([x.mean(0), last[-1]], 1)


def norm(m, x):
    return x / torch.linalg.vector_norm(x, dim=0, keepdim=True)


def counted(m, x):
    m.seen.add_(1)
    return x + m.seen


def written(m, x):
    y = x * 1
    y[:, 0] = x.mean()
    return y


IDS = torch.randint(0, 9, (2, 7))


def restored(m, x):
    order = x[:, 0].argsort()
    return (x[order] * 2)[order.argsort()]


def cleared(m, x):
    y = x.clone()
    y[y < 0] = 0
    return y


PROVED = {
    "a network of convolutions": lambda: exported(Convolutional().eval(), (2, 3, 32, 32)),
    "an encoder": lambda: exported(Encoder().eval(), IDS, (0, 1)),
    "recurrent layers": lambda: exported(Recurrent().eval(), (2, 7, 4)),
    "a mean of each record": lambda: exported(lambda m, x: x.view(x.shape[0], 2, 2).mean((1, 2))),
    "a mean that no output has": lambda: exported(lambda m, x: (x.mean(0), x.sigmoid())[1]),
    "numbers that are written once": lambda: exported(lambda m, x: (x * 2).relu_().add_(1)),
    "the first two columns": lambda: exported(lambda m, x: torch.stack([x[:, 0], x[:, 1]], 1)),
    "windows of a signal": lambda: exported(lambda m, x: x.unfold(1, 2, 1).amax(-1)),
    "a state that no answer has": lambda: exported(lambda m, x: (m.seen.add_(1), x.relu())[1]),
}
MIXED = {
    "a mean": (lambda: exported(lambda m, x: x - x.mean(0)), "aten.mean.dim 'mean'"),
    "a norm": (lambda: exported(norm), "aten.linalg_vector_norm.default 'linalg_vector_norm'"),
    "a softmax": (lambda: exported(lambda m, x: x.softmax(0)), "aten.softmax.int 'softmax'"),
    "a sum of all before": (lambda: exported(lambda m, x: 1e-3 * x.cumsum(0)), "aten.cumsum.default 'cumsum'"),
    "attention between records": (
        lambda: exported(lambda m, x: functional.scaled_dot_product_attention(x, x, x)),
        "aten.scaled_dot_product_attention.default 'scaled_dot_product_attention'",
    ),
    "a normalization as in training": (
        lambda: exported(Of(lambda m, x: m.norm(x), norm=nn.BatchNorm1d(4))),
        "aten.batch_norm.default 'norm.batch_norm'",
    ),
    "the first record": (lambda: exported(lambda m, x: x + x[0]), "aten.select.int 'select'"),
    "one column": (
        lambda: exported(lambda m, x: torch.cat([x[:, 1:], 1e-4 * x[:, :1].mean(0).expand(x.shape[0], 1)], 1)),
        "aten.mean.dim 'mean'",
    ),
    "similar records": (lambda: exported(lambda m, x: (x @ x.T).relu() @ x), "aten.matmul.default 'matmul'"),
}
PERHAPS = {
    "numbers in their order": lambda: exported(lambda m, x: x[:, 0].sort(0).values),
    "places in the order of records": lambda: exported(lambda m, x: x + x[:, 0].argsort().argsort()[:, None]),
    "the place in the call": lambda: exported(lambda m, x: x + 1e-3 * torch.arange(x.shape[0])[:, None]),
    "the number of records": lambda: exported(lambda m, x: x * x.shape[0]),
    "the number of records, times a fraction": lambda: exported(lambda m, x: x * (1 + 1e-3 * x.shape[0])),
    "places by a number modulo that of the records": lambda: exported(
        lambda m, x: x[(x.abs().sum(1) * 1000).long() % x.shape[0]]
    ),
    "sums over the records of a kind": lambda: exported(
        lambda m, x: torch.zeros(8, 4).index_add(0, x[:, 0].long().clamp(0, 7), x)[x[:, 0].long().clamp(0, 7)]
    ),
    "kinds of records": lambda: exported(lambda m, x: x + x[:, 0].unique(return_inverse=True)[1][:, None]),
    "a spectrum of records": lambda: exported(lambda m, x: x + torch.fft.rfft(x, 8, 0).abs()[:1]),
    "images at places of other records": lambda: exported(
        lambda m, x: functional.grid_sample(x[None, None], torch.stack([x, x], 2)[None], align_corners=False)[0, 0]
    ),
    "the sum of all before by a triangle": lambda: exported(
        lambda m, x: (torch.arange(x.shape[0])[:, None] >= torch.arange(x.shape[0])).float() @ x
    ),
    "all elements in a row": lambda: exported(lambda m, x: x.roll(1)),
    "channels over all records": lambda: exported(lambda m, x: functional.group_norm(x.T[None], 2)[0].T),
    "the record before": lambda: exported(lambda m, x: x + 0.02 * functional.pad(x, (0, 0, 1, 0))[:-1]),
    "records in the order of their sizes": lambda: exported(lambda m, x: x.sort(0).values),
    "records that are chosen": lambda: exported(lambda m, x: torch.where(x > 0, x, x.flip(0))),
    "a mean, times nothing": lambda: exported(lambda m, x: x + 0 * x.mean(0)),
    "a mean, added zero times": lambda: exported(lambda m, x: torch.add(x, x.mean(0), alpha=0)),
}
UNKNOWN = {
    "records in an order, and back": lambda: exported(restored),
    "the elements that each record chooses": lambda: exported(lambda m, x: x[torch.arange(x.shape[0]), x.argmax(1)]),
    "elements that are counted through all records": lambda: exported(
        lambda m, x: x.reshape(-1)[x.argmax(1) + 4 * torch.arange(x.shape[0])]
    ),
    "a mask that is written": lambda: exported(cleared),
    "what drops out": lambda: exported(lambda m, x: functional.dropout(x, 0.5, training=True)),
    "a triangle of the batch": lambda: exported(lambda m, x: x.tril()),
    "random numbers": lambda: exported(lambda m, x: x + torch.rand_like(x)),
    "a state": lambda: exported(counted),
    "a part that is written": lambda: exported(written),
    "an input that is written": lambda: exported(lambda m, x: (x.add_(x.mean(0)), x)[1]),
    "memory by steps": lambda: exported(lambda m, x: x.as_strided((x.shape[0], 4), (4, 1))),
}


@pytest.mark.parametrize("name", PROVED)
def test_rows_that_are_apart_are_proven(name):
    assert found(PROVED[name]()) == Finding(0)


@pytest.mark.parametrize("name", MIXED)
def test_the_operator_that_mixes_rows_is_found(name):
    program, operator = MIXED[name]
    assert found(program()) == Finding(mixed_by=operator)


@pytest.mark.parametrize("name", PERHAPS)
def test_an_operator_whose_mixing_may_have_an_effect_is_found(name):
    finding = found(PERHAPS[name]())
    assert (finding.axis, finding.mixed_by) == (None, "") and finding.may_mix


@pytest.mark.parametrize("name", UNKNOWN)
def test_of_all_else_nothing_is_known(name):
    assert found(UNKNOWN[name]()) == Finding()


def test_a_choice_between_parts_of_a_program_is_not_known():
    program = exported(lambda m, x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)))
    assert found(program) == Finding()


def test_core_operators_say_the_same():
    layers = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.GELU(), nn.BatchNorm1d(6), nn.Linear(6, 3))
    program = exported(lambda m, x: m.layers(x), layers=layers).run_decompositions()
    assert found(program) == Finding(0)


def test_a_size_that_is_the_number_of_records_proves_nothing():
    program = exported(lambda m, x: x.relu())
    module = program.module()
    assert follow(read(module, {"x": ["s", "s"]}, ["y"]), {"x": 0})["y"] == Finding()
    assert follow(read(module, {"x": ["s", 4]}, ["y"]), {"x": 0})["y"] == Finding(0)
    assert read(module, {"x": ["s", 4]}, ["y", "z"]) is None


def test_what_the_program_proves_is_not_tried_with_other_values(tmp_path, monkeypatch):
    tried = []
    moved = influence.Influence._moved
    monkeypatch.setenv("CLUSTER_SERVING_CACHE", "/proc/none")
    monkeypatch.setattr(influence.Influence, "_moved", lambda *rest: tried.append(1) or moved(*rest))
    model = saved(tmp_path, PROVED["recurrent layers"]())
    assert model.one_by_one == "" and not tried
    x = np.random.default_rng(0).random((5, 7, 4), np.float32)
    together = model.predict([x])[0]
    alone = np.concatenate([model.predict([x[at : at + 1]])[0] for at in range(5)])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-6)
    assert saved(tmp_path, exported(lambda m, x: x.as_strided((x.shape[0], 4), (4, 1)))).one_by_one == ""
    assert tried


def test_a_refused_program_names_the_operator_and_its_module(tmp_path):
    model = saved(tmp_path, exported(lambda m, x: x + m.part(x), part=Of(lambda m, x: 1e-3 * x.mean(0))))
    assert model.one_by_one == (
        "output 'output' of a record depends on the others in its batch (aten.mean.dim 'part.mean' mixes them)"
    )


def test_a_program_whose_rows_are_one_record_names_the_operator(tmp_path):
    model = saved(tmp_path, exported(lambda m, x: x.softmax(0)))
    assert model.one_by_one == (
        "its inputs have no batch dimension, as aten.softmax.int 'softmax' mixes the rows of their axes"
    )


@pytest.mark.parametrize(
    "name", ["the record before", "the place in the call", "a part that is written", "what drops out", "a state"]
)
def test_what_the_program_does_not_tell_is_found_by_its_values(tmp_path, name):
    assert saved(tmp_path, (PERHAPS | UNKNOWN)[name]()).one_by_one


def test_numbers_that_others_are_compared_with_are_known():
    program = exported(lambda self, x: torch.where((x < 7.5) & (x > torch.tensor([1.0, 2.0, 3.0, 4.0])), x, 0))
    bounds = read(program.module(), {"x": [None, 4]}, ["y"]).bounds(9)
    assert [array.tolist() for array in bounds] == [7.5, [1, 2, 3, 4]]
