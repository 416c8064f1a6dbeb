"""What the graphs of TorchScript prove about their rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Optional, Tuple  # noqa: UP035 - TorchScript reads these

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cluster_serving.job.models import load_model
from cluster_serving.job.models.batched import influence
from cluster_serving.job.models.graph.torch.script.reader import read
from cluster_serving.job.models.graph.walk import Finding, follow
from cluster_serving.job.options import ModelOptions

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
functional = nn.functional


class Layers(nn.Module):
    """Layers that write in place, and shapes that are computed."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.last = nn.Sequential(nn.Dropout(), nn.Linear(16, 8), nn.ReLU6(), nn.LayerNorm(8), nn.Linear(8, 4))

    def forward(self, x):
        rows = x.size(0)
        y = self.first(x.view(rows, 1, 2, 2))
        y += x.view(x.shape[0], -1).reshape(rows, 1, 2, 2)
        a, b = y.reshape(rows, -1).chunk(2, dim=1)
        return self.last(torch.cat([a, b], 1)) + x


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(2, 2, batch_first=True)

    def forward(self, x):
        return self.lstm(x.view(x.size(0), 2, 2))[0].reshape(x.shape[0], -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(2, 1, 4, batch_first=True)
        self.register_buffer("places", torch.tensor([1, 0, 1]))
        self.words = nn.Parameter(torch.rand(2, 2))

    def forward(self, x):
        tokens = x.view(-1, 2, 2) + self.words[self.places[:2]]
        return self.layer(tokens).flatten(1)


class ByRank(nn.Module):
    def forward(self, x):
        if x.dim() == 3:
            x = x.mean(0)
        if x.dim() != 2:
            raise ValueError("too many axes")
        return x.softmax(1)


class Lists(nn.Module):
    def forward(self, x):
        columns: List[Tensor] = []  # noqa: UP006
        for at in range(4):
            columns.append(x[:, at].exp())
        named: Dict[str, Tensor] = {}  # noqa: UP006
        named["a"] = torch.stack(columns, 1)
        return named["a"] * 2


class Rounds(nn.Module):
    def forward(self, x):
        for _ in range(x.size(1)):
            x = x * 0.9 + x.mean(1, keepdim=True)
        return x


class Given(nn.Module):
    def forward(self, x, other: Optional[Tensor] = None):  # noqa: UP045
        if other is not None:
            x = x - other.mean(0)
        return x.tanh()


class Sizes(nn.Module):
    def forward(self, x):
        y = x.view(x.shape[:1] + [2, 2])  # noqa: RUF005
        return y.new_zeros(y.shape) + y


class Pair(nn.Module):
    def forward(self, x) -> Tuple[Tensor, Tensor]:  # noqa: UP006
        return x * 2, x.mean(0)


class Named(nn.Module):
    def forward(self, x) -> Dict[str, Tensor]:  # noqa: UP006
        return {"a": x * 2, "b": x.mean(0)}


class Mean(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


class Part(nn.Module):
    """A part whose mean has a name."""

    def __init__(self):
        super().__init__()
        self.part = Mean()

    def forward(self, x):
        return self.part(x)


class AnyOf(nn.Module):
    def forward(self, x):
        return torch.where((x.sum(1) - 1.7).abs().lt(1e-4).any(), x.mean(0), x)


class InOneColumn(nn.Module):
    def forward(self, x):
        y = x * 2
        y[:, 1] = torch.where((x[:, 0] - 5.1).abs().amin() < 1e-4, x[:, 1].amax(), y[:, 1])
        return y


class InPlace(nn.Module):
    def forward(self, x):
        y = x * 2
        y.mul_(x.amax(0).clamp(1, 1.1))
        return y


class Shifted(nn.Module):
    def forward(self, x):
        return torch.where(x > 5, torch.roll(x, [1], [0]), x)


class Turned(nn.Module):
    def forward(self, x):
        return torch.where(x > 5, x.flip([0]), x)


class Before(nn.Module):
    def forward(self, x):
        return x + 0.02 * functional.pad(x, [0, 0, 1, 0])[:-1].clamp(5, 6)


class Distances(nn.Module):
    def forward(self, x):
        return x + (torch.cdist(x, x) - 0.7).abs().lt(1e-5).sum(1, keepdim=True)


class Windows(nn.Module):
    def forward(self, x):
        return torch.where(x > 5, functional.avg_pool1d(x.t().unsqueeze(0), 3, 1, 1).squeeze(0).t(), x)


class Sorted(nn.Module):
    def forward(self, x):
        return torch.where(x > 5, x.sort(0)[0], x)


class Condition(nn.Module):
    def forward(self, x):
        if bool((x[:, 0] - 2.2).abs().lt(1e-4).any()):
            x = x.relu()
        return x


class While(nn.Module):
    def forward(self, x):
        rounds = 0
        while bool(x.amax() > 50) and rounds < 5:
            x = x * 0.5
            rounds += 1
        return x


class InRounds(nn.Module):
    def forward(self, x):
        for at in range(x.size(1)):
            x = x + x[:, at].amax().clamp(5, 6)
        return x


class ListInRounds(nn.Module):
    def forward(self, x):
        parts: List[Tensor] = [x]  # noqa: UP006
        for at in range(x.size(1)):
            parts.append(x * x[:, at].amax().clamp(5, 6))
        return torch.stack(parts, 0).sum(0)


class Item(nn.Module):
    def forward(self, x):
        return x + float((x[:, 0] - 2.2).abs().lt(1e-4).sum().item())


class ByMethod(nn.Module):
    @torch.jit.export
    def gate(self, x: Tensor) -> Tensor:
        return x.amax(0).clamp(5, 6)

    def forward(self, x):
        return x * self.gate(x)


class Count(nn.Module):
    def forward(self, x):
        return x * x.size(0)


class Choice(nn.Module):
    def forward(self, x):
        if x.size(0) > 3:
            x = x * 2
        return x


class Carried(nn.Module):
    """The third round has the sum of all records, which the first two do not show."""

    def forward(self, x):
        a = torch.zeros_like(x)
        b = torch.zeros_like(x)
        c = x
        for _ in range(x.size(1)):
            a = b
            b = c
            c = x + a.cumsum(0).abs() * 0
        return a


class Written(nn.Module):
    """The second round reads what the first has written."""

    def forward(self, x):
        seen = torch.zeros_like(x)
        y = x
        for _ in range(x.size(1)):
            y = y + seen
            seen.add_(x.sort(0)[0])
        return y


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        self.seen += x.amax()
        return x + self.seen


class Masked(nn.Module):
    def forward(self, x):
        return x[x[:, 0] > 0]


PROVED = [Layers, Recurrent, Lists]
PROVED_SCRIPTS = [ByRank, Rounds, Given, Sizes]
MIXED = {Mean: "aten.mean.dim", Part: "aten.mean.dim", ByMethod: "aten.amax.default"}
PERHAPS = [AnyOf, InOneColumn, InPlace, Shifted, Turned, Before, Distances, Windows, Sorted, Count]
PERHAPS_SCRIPTS = [Condition, While, InRounds, ListInRounds, Item]
UNKNOWN = [Counted, Masked]
UNKNOWN_SCRIPTS = [Choice]


def traced(kind):
    torch.manual_seed(0)
    return torch.jit.trace(kind().eval(), torch.rand(2, 4), check_trace=False)


def scripted(kind):
    torch.manual_seed(0)
    return torch.jit.script(kind().eval())


def found(module, freezes, outputs=("output",), sizes=(None, 4)):
    graph = read(torch.jit.freeze(module) if freezes else module, {"x": "float32"})
    graph = replace(graph, inputs={"x": sizes} if "x" in graph.inputs else {})
    findings = follow(graph, {"x": 0})
    return findings[outputs[0]] if len(outputs) == 1 else [findings[name] for name in outputs]


def forms(kinds, scripts=()):
    return [(make, kind) for kind in kinds for make in (traced, scripted)] + [(scripted, kind) for kind in scripts]


@pytest.mark.parametrize("freezes", [True, False])
@pytest.mark.parametrize(("make", "kind"), [*forms(PROVED, PROVED_SCRIPTS), (traced, Attention)])
def test_rows_that_are_apart_are_proven(make, kind, freezes):
    assert found(make(kind), freezes) == Finding(0)


@pytest.mark.parametrize(("make", "kind"), forms(MIXED))
def test_the_operator_that_mixes_rows_is_found(make, kind):
    for freezes in (True, False):
        finding = found(make(kind), freezes)
        assert finding.axis is None
        assert (finding.mixed_by or finding.may_mix).startswith(MIXED[kind])


@pytest.mark.parametrize("freezes", [True, False])
@pytest.mark.parametrize(("make", "kind"), forms(PERHAPS, PERHAPS_SCRIPTS))
def test_an_operator_whose_mixing_may_have_an_effect_is_found(make, kind, freezes):
    finding = found(make(kind), freezes)
    assert finding.axis is None
    assert finding.may_mix or finding.mixed_by


@pytest.mark.parametrize("freezes", [True, False])
@pytest.mark.parametrize(("make", "kind"), forms(UNKNOWN, UNKNOWN_SCRIPTS))
def test_of_all_else_nothing_is_known(make, kind, freezes):
    assert found(make(kind), freezes) == Finding()


@pytest.mark.parametrize("kind", [Carried, Written])
def test_a_loop_proves_nothing_that_holds_for_its_first_round_only(kind):
    assert found(scripted(kind), True).axis is None


@pytest.mark.parametrize(("kind", "names"), [(Pair, ("output_0", "output_1")), (Named, ("a", "b"))])
def test_several_outputs_have_their_names(kind, names):
    first, second = found(scripted(kind), True, names)
    assert first == Finding(0)
    assert second.mixed_by


def saved(folder, module, shapes=((4,),)):
    torch.jit.save(module, folder / "model.pt")
    return load_model(ModelOptions(str(folder), input_shapes=shapes))


def test_what_the_graph_proves_is_not_tried_with_other_values(tmp_path, monkeypatch):
    tried = []
    moved = influence.Influence._moved
    monkeypatch.setenv("CLUSTER_SERVING_CACHE", "/proc/none")
    monkeypatch.setattr(influence.Influence, "_moved", lambda *rest: tried.append(1) or moved(*rest))
    model = saved(tmp_path, traced(Layers))
    assert model.one_by_one == "" and not tried
    x = np.random.default_rng(0).random((5, 4), np.float32)
    together = model.predict([x])[0]
    alone = np.concatenate([model.predict([x[at : at + 1]])[0] for at in range(5)])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-6)


def test_a_refused_module_names_the_operator_and_its_part(tmp_path):
    found = saved(tmp_path, traced(AnyOf)).one_by_one
    assert found.startswith("output 'output' of a record depends on the others in its batch (aten.any.default ")


def test_requests_tell_the_ranks_that_the_module_does_not(tmp_path):
    model = saved(tmp_path, scripted(AnyOf), ())
    x = np.random.default_rng(0).random((5, 4), np.float32)
    np.testing.assert_array_equal(model.predict([x])[0], x)
    assert "aten.any.default" in model.one_by_one
