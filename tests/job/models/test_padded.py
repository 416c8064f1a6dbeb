"""Padding: records of different sizes share a call, and get the outputs of their own size."""

import numpy as np
import pytest

from cluster_serving.job.batch import gather
from cluster_serving.job.models.base import Model, TensorSpec
from cluster_serving.job.models.padded import PaddedModel
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput, ModelError
from cluster_serving.protocol.figures.counts import Counts
from tests.support.fixtures.handled import load, results, write
from tests.support.fixtures.predictor import save_doubling
from tests.support.payloads import model_zoo, texts

IDS = {"input_ids": 0, "attention_mask": 0, "token_type_ids": 0}


class Python(Model):
    """A model of numpy; `shapes` has those of the batches that it has computed."""

    engine = "Python"

    def __init__(self, function, **shapes):
        self._function = function
        self.inputs = [TensorSpec(name, "float32", (None, *shape)) for name, shape in shapes.items()]
        self.outputs = []
        self.shapes = []

    def _run(self, inputs):
        self.shapes.append(inputs[0].shape)
        outputs = self._function(*inputs)
        self.outputs = [TensorSpec(f"y{index}", "float32", (None,) * array.ndim) for index, array in enumerate(outputs)]
        return outputs


def vector(size):
    return np.arange(1, size + 1, dtype="f4")


def computed(model, *sizes):
    return model.predict([gather(map(vector, sizes))])


def test_outputs_that_follow_a_size_are_cut_back_to_it():
    inner = Python(lambda x: [2 * x, x.sum(axis=1), x[:, :1]], x=[None])
    doubled, total, first = computed(PaddedModel(inner, {"x": 0}), 5, 3, 7, 3)
    assert inner.shapes[-1] == (4, 8)
    assert [array.tolist() for array in doubled] == [(2 * vector(size)).tolist() for size in (5, 3, 7, 3)]
    assert total.tolist() == [15, 6, 28, 6]
    assert first.tolist() == [[1]] * 4


def test_a_long_record_does_not_make_work_of_short_ones():
    inner = Python(lambda x: [x.sum(axis=1)], x=[None])
    model = PaddedModel(inner, {"x": 0})
    inner.shapes.clear()
    (total,) = computed(model, 4, 1000, 12, 900, 5)
    assert total.tolist() == [vector(size).sum() for size in (4, 1000, 12, 900, 5)]
    assert inner.shapes == [(2, 1000), (3, 16)]


def test_sizes_are_rounded_up_unless_the_model_takes_no_more():
    def function(x):
        if x.shape[1] > 7:
            raise ValueError("too long")
        return [x.sum(axis=1)]

    inner = Python(function, x=[None])
    model = PaddedModel(inner, {"x": 0})
    inner.shapes.clear()
    assert [array.tolist() for array in computed(model, 7, 6)] == [[28, 21]]
    assert [array.tolist() for array in computed(model, 5, 2)] == [[15, 3]]
    assert inner.shapes == [(2, 8), (2, 7), (2, 7)]
    with pytest.raises(InferenceFailed, match="too long"):
        computed(model, 8)


def test_any_number_of_records_is_computed_in_parts():
    inner = Python(lambda x: [x.sum(axis=1)], x=[None])
    model = PaddedModel(inner, {"x": 0})
    for sizes in ([3] * 150, [3, 5] * 75):
        inner.shapes.clear()
        (total,) = computed(model, *sizes)
        assert total.tolist() == [vector(size).sum() for size in sizes]
        assert [count for count, _ in inner.shapes] == [64, 64, 22]


def test_each_dimension_follows_its_own_input():
    inner = Python(lambda a, b: [a[:, :, None] * b[:, None, :]], a=[None], b=[None])
    model = PaddedModel(inner, {"a": 0, "b": 0})
    (outer,) = model.predict([gather([vector(2), vector(3)]), gather([vector(5), vector(4)])])
    assert [array.shape for array in outer] == [(2, 5), (3, 4)]


def test_inputs_whose_sizes_have_to_be_equal_are_found():
    def function(ids, mask, scale):
        return [ids * mask, scale]

    model = PaddedModel(Python(function, ids=[None], mask=[None], scale=[None]), {"ids": 0, "mask": 0, "scale": 0})
    masked, scale = model.predict(
        [gather([vector(2), vector(3)]), gather([vector(2), vector(3)]), gather([vector(7), vector(1)])]
    )
    assert [array.shape for array in masked] == [(2,), (3,)]
    assert [array.shape for array in scale] == [(7,), (1,)]


def test_a_model_that_refuses_made_up_sizes_is_asked_for_others():
    def function(x, mask):
        if x.shape != mask.shape:
            raise InvalidInput("x and mask differ in size")
        return [x * mask]

    inner = Python(function, x=[None], mask=[None])
    (masked,) = PaddedModel(inner, {"x": 0, "mask": 0}).predict([gather([vector(3), vector(5)])] * 2)
    assert [array.tolist() for array in masked] == [[1, 4, 9], [1, 4, 9, 16, 25]]


def test_records_that_differ_in_other_sizes_are_computed_apart():
    inner = Python(lambda x: [x], x=[None, None])
    inner.inputs.append(TensorSpec("z", "float32", (None, None)))
    inner._function = lambda x, z: [x, z]
    model = PaddedModel(inner, {"x": 0})
    x, z = model.predict([gather([np.ones((2, 3), "f4"), np.ones((4, 1), "f4")]), gather([vector(2), vector(2)])])
    assert [array.shape for array in x] == [(2, 3), (4, 1)]
    assert [list(array) for array in z] == [[1, 2], [1, 2]]


def test_shorter_records_are_filled_up_to_a_fixed_size_and_longer_ones_refused():
    model = PaddedModel(Python(lambda x: [x.sum(axis=1), x[:, :, None]], x=[8]), {"x": 0})
    assert str(model.inputs[0]) == "x: float32[?, ?]"
    total, column = computed(model, 5, 8)
    assert total.tolist() == [15, 36]
    assert [array.shape for array in column] == [(5, 1), (8, 1)]
    with pytest.raises(InvalidInput, match=r"input 'x' has 9 elements where the model takes 8: x: float32\[\?, 8\]"):
        computed(model, 9)


@pytest.mark.parametrize(
    ("values", "shape", "message"),
    [
        ({"y": 0}, [None], r"padding names the input 'y', and the model expects x: float32\[\?, \?\]"),
        ({"x": 0}, [], r"padding names the input x: float32\[\?\], which is a single value"),
        ({"x": 1e99}, [None], r"padding has 1e\+99 for the input x: .*, which cannot hold it"),
    ],
)
def test_padding_that_does_not_fit_is_refused(values, shape, message):
    with pytest.raises(ModelError, match=message):
        PaddedModel(Python(lambda x: [x], x=shape), values)


def test_an_output_that_follows_in_another_way_is_refused():
    with pytest.raises(
        ModelError, match=r"output 'y0' has 1 elements for inputs of 2, and 2 for 3, .* pad in a handler"
    ):
        PaddedModel(Python(lambda x: [x[:, 1:]], x=[None]), {"x": 0})


def test_a_model_that_fails_on_all_sizes_is_refused():
    def function(x):
        raise ValueError("no")

    with pytest.raises(ModelError, match="the model fails on records of zeros of different sizes: Python failed: no"):
        PaddedModel(Python(function, x=[None]), {"x": 0})


def requests(count):
    """Requests of token ids, and the vectors of their tokens."""
    random = np.random.default_rng(0)
    for size in random.integers(1, 32, count):
        ids = random.integers(4, 20, size)
        yield {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def expected(request):
    import torch

    with torch.no_grad():
        return texts.bert()(*(torch.from_numpy(array[None]) for array in request.values()))[0].numpy()


@pytest.mark.parametrize("timeout", [None, 60])
def test_the_answers_of_a_masked_model_are_those_without_padding(tmp_path, timeout):
    texts.save_model(tmp_path)
    many = list(requests(40))
    found = results(load(tmp_path, padding=IDS, inference_timeout_s=timeout), *many)
    for request, result in zip(many, found, strict=True):
        np.testing.assert_allclose(result["last_hidden_state"], expected(request), atol=1e-5)


def test_requests_of_several_records_are_padded_too(tmp_path):
    texts.save_model(tmp_path)
    batches = [{name: np.stack([array] * 3) for name, array in request.items()} for request in requests(5)]
    found = results(load(tmp_path, padding=IDS, pooling="cls"), *batches)
    for request, result in zip(requests(5), found, strict=True):
        np.testing.assert_allclose(result["embedding"], [expected(request)[0]] * 3, atol=1e-5)


def test_images_of_different_sizes_share_a_batch(tmp_path):
    save_doubling(tmp_path, 3, -1, -1)
    model = load(tmp_path, padding={"x": -1})
    many = [np.full((3, height, 20 - height), height, "f4") for height in range(5, 15)]
    found = results(model, *({"x": image} for image in many))
    for image, result in zip(many, found, strict=True):
        np.testing.assert_array_equal(result["y"], 2 * image)
    (wrong,) = results(model, {"x": np.zeros((4, 9, 9), "f4")})
    assert str(wrong.error) == "input 'x' is float32[4, 9, 9], but the model expects x: float32[3, ?, ?]"


def test_torchscript_is_padded_where_its_shapes_are_configured(tmp_path):
    import torch

    class Doubled(torch.nn.Module):
        def forward(self, x):
            return 2 * x

    model_zoo.save_torchscript(tmp_path, Doubled(), torch.zeros(1, 3))
    with pytest.raises(
        ModelError, match=r"the input x: any\[...\], whose shape is not known; set inputShapes: \[\[-1\]\]"
    ):
        load(tmp_path, padding={"x": 0})
    found = results(load(tmp_path, padding={"x": 0}, input_shapes=((-1,),)), {"x": vector(3)}, {"x": vector(5)})
    assert [len(result["output"]) for result in found] == [3, 5]


def test_the_model_of_a_handler_is_padded(tmp_path):
    save_doubling(tmp_path, -1)
    write(
        tmp_path,
        """
        class Handler:
            def preprocess(self, request):
                return {"x": request["x"][:4]}

            def postprocess(self, result):
                return {"y": result["y"], "size": len(result["y"])}
        """,
    )
    found = results(load(tmp_path, padding={"x": 0}), *({"x": vector(size)} for size in (2, 3, 9)))
    assert [(list(result["y"]), result["size"]) for result in found] == [([2, 4], 2), ([2, 4, 6], 3), ([2, 4, 6, 8], 4)]


def test_a_handler_calls_a_padded_model_with_lists(tmp_path):
    save_doubling(tmp_path, -1)
    write(
        tmp_path,
        """
        class Handler:
            inputs = {"x": "float32[?]"}

            def load(self, context):
                self.model = context.load()

            def predict(self, batch):
                halves = [half for x in batch["x"] for half in (x, x[:1])]
                return {"y": self.model({"x": halves})["y"][::2]}
        """,
    )
    found = results(load(tmp_path, padding={"x": 0}), *({"x": vector(size)} for size in (2, 3, 2)))
    assert [list(result["y"]) for result in found] == [[2, 4], [2, 4, 6], [2, 4]]


def test_the_share_of_padding_is_counted():
    counts = Counts()
    model = PaddedModel(Python(lambda x: [x.sum(axis=1)], x=[None]), {"x": 0})
    model.count_into(counts)
    computed(model, 3, 8)
    assert counts.take() == {"padded_elements": 16, "padding_elements": 5}
