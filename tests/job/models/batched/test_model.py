"""A model whose batch is first, around functions that stand for engines."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cluster_serving.job.models.base import Model, TensorSpec
from cluster_serving.job.models.batched import budget, proof
from cluster_serving.job.models.batched.model import BatchedModel
from cluster_serving.job.models.graph.network import Graph, Node
from cluster_serving.job.models.graph.onnx.elementwise import OPERATORS
from cluster_serving.job.models.graph.size import Size
from cluster_serving.job.models.graph.value import constant
from cluster_serving.protocol.errors import InferenceFailed, ModelError


class Raw(Model):
    """A function of tensors; counts its calls."""

    engine = "Fake"

    def __init__(self, run, *shapes, outputs=(None,), dtype="float32"):
        self.inputs = [TensorSpec(f"x{index}", dtype, shape) for index, shape in enumerate(shapes)]
        self.outputs = [TensorSpec(f"y{index}", "", shape) for index, shape in enumerate(outputs)]
        self._compute = run
        self.calls = []

    def _run(self, inputs):
        self.calls.append(len(inputs[0]) if inputs[0].ndim else 0)
        result = self._compute(*inputs)
        return list(result) if isinstance(result, tuple) else [result]


def batched(*args, named=False, **kwargs):
    raw = Raw(*args, **kwargs)
    if named:
        raw.symbols = {spec.name: ["batch", *("" for _ in spec.shape[1:])] for spec in raw.inputs}
    model = BatchedModel(raw)
    model.prove()
    return model


def records(count, *shape):
    return np.random.default_rng(5).normal(0, 1, (count, *shape)).astype(np.float32)


def test_a_usual_model_computes_a_batch_in_one_call():
    model = batched(np.sin, (None, 4))
    raw, x = model._model, records(5, 4)
    raw.calls.clear()
    np.testing.assert_array_equal(model.predict([x])[0], np.sin(x))
    assert raw.calls == [5]
    assert model.one_by_one == ""


def test_a_fixed_batch_is_cut_and_filled_up():
    model = batched(np.sin, (4, 2))
    raw, x = model._model, records(6, 2)
    raw.calls.clear()
    np.testing.assert_array_equal(model.predict([x])[0], np.sin(x))
    assert raw.calls == [4, 4]


def test_a_fixed_batch_with_a_name_is_one_although_rows_depend_on_each_other():
    model = batched(lambda x: x + x.sum(0), (4, 2), named=True)
    x = records(3, 2)
    np.testing.assert_allclose(model.predict([x])[0], 5 * x, rtol=1e-6)
    assert model.one_by_one == "output 'y0' of a record depends on the others in its batch"


def test_a_model_whose_rows_depend_on_each_other_computes_one_record_a_call():
    model = batched(lambda x: x - x.mean(0), (None, 4), named=True)
    x = records(3, 4)
    np.testing.assert_array_equal(model.predict([x])[0], np.zeros_like(x))
    assert model.one_by_one == "output 'y0' of a record depends on the others in its batch"


def test_rows_that_depend_on_each_other_are_a_record_where_no_name_says_otherwise():
    model = batched(lambda x: np.cumsum(x, 0), (None, 4))
    x = records(2, 7, 4)
    np.testing.assert_array_equal(model.predict([x])[0], np.cumsum(x, 1))
    assert str(model.inputs[0]) == "x0: float32[?, ?, 4]"


def test_a_scale_of_the_whole_batch_is_a_dependence():
    """As of dynamic quantization: small, and only if a record has larger numbers than the others."""
    model = batched(lambda x: np.round(x / np.abs(x).max() * 127) / 127 * np.abs(x).max(), (None, 64))
    assert "depends on the others" in model.one_by_one


def test_each_record_has_its_own_scalar():
    model = batched(lambda x, t: x * t, (None, 4), ())
    x, t = records(3, 4), np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(model.predict([x, t])[0], x * t[:, np.newaxis])
    assert model.one_by_one == "input 'x1' has no batch dimension"
    assert list(map(str, model.inputs)) == ["x0: float32[?, 4]", "x1: float32[?]"]


def test_rows_that_follow_the_data_belong_to_their_record():
    model = batched(lambda x: np.argwhere(x > 0.5), (None, 4), outputs=((None, 2),))
    x = np.array([[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], np.float32)
    (found,) = model.predict([x])
    assert [rows.tolist() for rows in found] == [[[0, 0]], [], [[0, 0], [0, 1], [0, 2], [0, 3]]]
    assert str(model.outputs[0]) == "y0: any[?, ?, 2]"


def test_what_random_records_did_not_show_is_noticed_later():
    """One row for each record while numbers are small."""
    model = batched(lambda x: np.concatenate([x, x[np.abs(x[:, 0]) > 1e5]]), (None, 2))
    assert model.one_by_one == ""
    x = np.array([[1, 2], [5e5, 3]], np.float32)
    (found,) = model.predict([x])
    assert [rows.tolist() for rows in found] == [[[1, 2]], [[5e5, 3], [5e5, 3]]]
    assert model.one_by_one == "output 'y0' does not follow the batch"


def refuse_large(ids):
    if ids.max() >= 2 and not (ids == 7).any():
        raise ValueError("index out of range")
    if not (ids == 7).any():
        raise ValueError("7 is missing")
    return ids[:, :1] * np.float32(1.5)


def test_what_nothing_proves_at_the_start_is_proven_by_requests():
    model = batched(refuse_large, (None, 6), dtype="int64")
    raw = model._model
    garbage = np.zeros((1, 6), np.int64)
    with pytest.raises(InferenceFailed, match="7 is missing"):
        model.predict([garbage])
    x = np.array([[7, 1, 2, 3, 4, 5], [6, 7, 2, 3, 4, 5], [3, 7, 2, 3, 4, 7]], np.int64)
    np.testing.assert_array_equal(model.predict([x])[0], x[:, :1] * 1.5)
    assert model.one_by_one == ""
    raw.calls.clear()
    model.predict([x])
    assert raw.calls == [3]


def test_shapes_that_only_requests_tell_are_learned_for_each_rank():
    model = batched(lambda x: x * 2, None)
    for x in (records(3), records(3, 4), records(3, 2, 2)):
        np.testing.assert_array_equal(model.predict([x])[0], x * 2)


def test_constant_outputs_share_calls_while_they_are_constant():
    model = batched(lambda x: np.where(np.abs(x) > 1e6, x, np.float32(1)), (None, 2))
    raw = model._model
    raw.calls.clear()
    model.predict([records(3, 2)])
    assert raw.calls == [3]
    x = np.array([[1, 2], [1e7, 3], [2e7, 5]], np.float32)
    np.testing.assert_array_equal(model.predict([x])[0], [[1, 1], [1e7, 1], [2e7, 1]])


def test_a_constant_of_guessed_sizes_is_none_of_others():
    def cropped(x):
        return np.repeat(x.max(1, keepdims=True) > 1e5, max(0, x.shape[1] - 20), 1)

    model = batched(cropped, (None, None))
    for size in (30, 50, 20, 30):
        x = np.random.default_rng(size).normal(0, 1e5, (3, size)).astype(np.float32)
        np.testing.assert_array_equal(model.predict([x])[0], cropped(x))
    assert model.one_by_one == ""


def test_an_output_that_seldom_changes_is_checked_when_it_does():
    """Beside one that is proven: a flag of the whole batch, and a label of each record."""
    flagged = batched(lambda x: (x * 2, np.repeat(x.max() > 1e5, len(x))), (None, 4), outputs=(None, None))
    labelled = batched(lambda x: (x * 2, x[:, 0] > 1e5), (None, 4), outputs=(None, None))
    x = np.zeros((3, 4), np.float32)
    x[1] = 1e6
    for model in (flagged, labelled):
        assert model.predict([x])[1].tolist() == [False, True, False]
    assert "depends on the others" in flagged.one_by_one
    assert labelled.one_by_one == ""
    labelled._model.calls.clear()
    labelled.predict([x])
    assert labelled._model.calls == [3]


def test_sizes_that_follow_the_data_are_noticed():
    def trim(ids):
        return ids[:, : int((ids != 299).sum(1).max())]

    model = batched(trim, (None, 6), dtype="int64")
    padded = np.array([[1, 2, 299, 299, 299, 299]])
    assert model.predict([np.ones((2, 6), np.int64)])[0].shape == (2, 6)
    assert model.predict([padded])[0].shape == (1, 2)
    both = np.concatenate([padded, np.ones((1, 6), np.int64)])
    assert [row.shape for row in model.predict([both])[0]] == [(2,), (6,)]


def test_parameters_without_a_batch_are_tried_as_ones():
    def resize(x, count):
        if not 0 < count <= 3:
            raise ValueError("count is out of range")
        return x[:, : int(count)].sum(1)

    model = batched(resize, (None, 4), ())
    assert model.one_by_one == "input 'x1' has no batch dimension"
    assert model.warm_up(1) is None


def test_a_model_of_random_answers_says_so():
    rng = np.random.default_rng(0)
    model = batched(lambda x: x + rng.normal(0, 1, x.shape).astype("f4"), (None, 4))
    assert model.one_by_one.startswith(
        "its outputs differ from call to call: it draws random numbers, or keeps a state"
    )


def test_free_sizes_are_guessed_until_the_model_takes_one():
    def least(x):
        if x.shape[1] < 200:
            raise ValueError("too short")
        return x.mean(1)

    model = batched(least, (None, None))
    assert model.one_by_one == ""
    np.testing.assert_allclose(model.predict([records(2, 300)])[0], records(2, 300).mean(1))


def test_of_inputs_without_shapes_only_what_is_certain_is_told():
    model = batched(lambda x, state, rate: (x * rate, state), None, (2, None, 8), ())
    assert list(map(str, model.inputs)) == ["x0: float32[...]", "x1: float32[...]", "x2: float32[?]"]


def smoothed(x):
    return np.cumsum(x, 0) * np.float32(0.5)


def test_a_sequence_is_whole_if_the_configuration_says_so_whatever_its_symbols():
    raw = Raw(smoothed, (None, 4))
    raw.symbols = {"x0": ["batch", ""]}
    model = BatchedModel(raw, whole=True)
    model.prove()
    x = records(2, 7, 4)
    np.testing.assert_array_equal(model.predict([x])[0], [smoothed(one) for one in x])
    assert model.one_by_one == "its inputs have no batch dimension"
    assert str(model.inputs[0]) == "x0: float32[?, ?, 4]"


def test_a_row_is_a_record_if_the_configuration_says_so():
    raw = Raw(smoothed, (None, 4))
    model = BatchedModel(raw, whole=False)
    model.prove()
    assert str(model.inputs[0]) == "x0: float32[?, 4]"
    np.testing.assert_array_equal(model.predict([records(3, 4)])[0], records(3, 4) * np.float32(0.5))


def test_a_graph_of_nodes_and_edges():
    def passed(x, edges):
        y = x.copy()
        np.add.at(y, edges[1], x[edges[0]])
        return y

    x, edges = records(1, 5, 4), np.array([[[0, 1, 4], [1, 2, 2]]])
    for whole in (True, None):
        raw = Raw(passed, (None, 4), (2, None))
        raw.inputs[1] = TensorSpec("x1", "int64", (2, None))
        model = BatchedModel(raw, whole=whole)
        model.prove()
        np.testing.assert_array_equal(model.predict([x, edges])[0], [passed(x[0], edges[0])])
        assert list(map(str, model.inputs)) == ["x0: float32[?, ?, 4]", "x1: int64[?, 2, ?]"]


class Training(Raw):
    def training_layer(self):
        return "bn"


def test_a_layer_in_training_is_named_and_its_rows_are_no_sequence():
    raw = Training(lambda x: (x - x.mean(0)) / (x.std(0) + np.float32(1)), (None, 4))
    model = BatchedModel(raw)
    model.prove()
    assert model.one_by_one == (
        "output 'y0' of a record depends on the others in its batch, as layer 'bn' computes as in training: export it "
        "after model.eval()"
    )
    assert str(model.inputs[0]) == "x0: float32[?, 4]"


def test_a_layer_in_training_that_needs_several_records_is_refused():
    def spread(x):
        if len(x) == 1:
            raise ValueError("more than 1 value per channel")
        return x - x.mean(0)

    with pytest.raises(ModelError, match=r"layer 'bn' computes as in training: export it after model\.eval\(\)"):
        BatchedModel(Training(spread, (None, 4))).prove()


def test_a_free_size_may_be_one_of_the_weights():
    weights = np.ones((37, 5), np.float32)
    raw = Raw(lambda x: x @ weights, (None, None))
    raw.graph = lambda: Graph(
        {"x0": None},
        {"y0": "y"},
        {"w": constant([Size(37), Size(5)])},
        [Node("MatMul", "", ["x0", "w"], ["y"])],
        {},
    )
    model = BatchedModel(raw)
    model.prove()
    assert model.one_by_one == ""
    assert batched(lambda x: x @ weights, (None, None)).warm_up(1) is None


def test_a_refused_record_may_take_memory_too(monkeypatch):
    """A model that failed at the end took as much as it liked, for larger and larger guesses of a free size."""
    guesses = []

    class Grown:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.bytes = guesses[-1] ** 3

    def refusing(x):
        guesses.append(x.shape[1])
        raise ValueError("no such size")

    monkeypatch.setattr(proof, "Growth", Grown)
    monkeypatch.setattr(proof, "limit", lambda: 128**3)
    batched(refusing, (None, None), named=True)
    assert max(guesses) == 64


def test_slow_records_are_tried_together_once_if_the_graph_proves_it_else_never(monkeypatch):
    monkeypatch.setattr(proof, "_SLOW_S", 0)
    monkeypatch.setattr(proof, "_BRIEF_S", 0)
    model = batched(np.sin, (None, 4), named=True)
    assert model.one_by_one == "a record takes too long to try several in a call"
    assert model._model.calls == [1, 1]
    np.testing.assert_array_equal(model.predict([records(2, 4)])[0], np.sin(records(2, 4)))
    raw = Raw(np.sin, (None, 4))
    raw.symbols = {"x0": ["batch", ""]}
    sine = Node("Sin", "", ["x0"], ["y"], 13)
    raw.graph = lambda: Graph({"x0": (None, 4)}, {"y0": "y"}, {}, [sine], OPERATORS)
    model = BatchedModel(raw)
    model.prove()
    assert model.one_by_one == ""
    assert raw.calls == [1, 1, 2]


def test_requests_of_a_slow_network_pay_for_one_proof(monkeypatch):
    """Random sizes tell nothing about a network that cuts off 500 numbers at each end."""
    monkeypatch.setattr(proof, "_BUDGET_S", 0)
    model = batched(lambda x: np.sin(x[:, 500:-500]), (None, None), outputs=((None, None),), named=True)
    raw, x = model._model, records(2, 1100)
    raw.calls.clear()
    np.testing.assert_array_equal(model.predict([x])[0], np.sin(x[:, 500:-500]))
    assert model.one_by_one == ""
    assert sum(raw.calls) == 23


def test_a_graph_whose_nodes_and_edges_have_symbols_of_their_own():
    """Random edges lead to no node, so the model refuses them, and only requests tell."""

    def passed(x, bias, edges, weights):
        if edges.max() >= len(x) or edges.shape[1] != len(weights) or len(x) != len(bias) or not x.any():
            raise ValueError("no graph")
        y = x + bias[:, None]
        np.add.at(y, edges[1], x[edges[0]] * weights[:, None])
        return y

    raw = Raw(passed, (None, 4), (None,), (2, None), (None,))
    raw.inputs[2] = TensorSpec("x2", "int64", (2, None))
    raw.symbols = {"x0": ["nodes", ""], "x1": ["nodes"], "x2": ["", "edges"], "x3": ["edges"]}
    model = BatchedModel(raw)
    model.prove()
    assert list(map(str, model.inputs))[2] == "x2: int64[?, 2, ?]"
    x, bias, weights = records(2, 5, 4), records(2, 5), records(2, 3)
    edges = np.array([[[0, 1, 4], [1, 2, 2]], [[3, 3, 3], [0, 1, 2]]])
    expected = [passed(*one) for one in zip(x, bias, edges, weights, strict=True)]
    np.testing.assert_array_equal(model.predict([x, bias, edges, weights])[0], expected)
    assert model.one_by_one == "its inputs have no batch dimension"


def test_a_sequence_with_a_state_of_its_own_is_one_record():
    def steps(x, h):
        rows = np.cumsum(np.concatenate([h[np.newaxis, :1], x[:, :1]]), 0)
        return rows[1:, 0], h + x.sum(0)[:3]

    raw = Raw(steps, (None, 6), (3,), outputs=((None,), (3,)))
    model = BatchedModel(raw)
    model.prove()
    assert model.one_by_one == "its inputs have no batch dimension"
    x, h = records(20, 6), records(1, 3)[0]
    rows, state = model.predict([x[np.newaxis], h[np.newaxis]])
    np.testing.assert_allclose(rows[0], steps(x, h)[0])
    np.testing.assert_allclose(state[0], steps(x, h)[1])


@pytest.fixture
def clock(monkeypatch):
    """The time of trials; its attribute `now` passes by hand."""
    clock = SimpleNamespace(now=0.0)
    told = SimpleNamespace(monotonic=lambda: clock.now, process_time=lambda: clock.now)
    monkeypatch.setattr(budget, "time", told)
    return clock


def test_a_first_axis_is_part_of_the_record_however_slow_the_trials_are(clock):
    def steps(x):
        clock.now += 1
        return np.cumsum(x, 0)

    model = batched(steps, (None, 4))
    assert model.one_by_one == "its inputs have no batch dimension"


def test_a_model_that_refuses_all_batches_takes_whole_tensors_however_slow_these_are(clock):
    def four_at_a_time(x):
        if len(x) % 4:
            clock.now += 1
            raise ValueError("rows come in fours")
        return x.reshape(-1, 4, 4).mean(1)

    model = batched(four_at_a_time, (None, 4))
    assert model.one_by_one == "its inputs have no batch dimension"
    x = records(1, 8, 4)
    np.testing.assert_array_equal(model.predict([x])[0][0], four_at_a_time(x[0]))
