"""Predictor: preprocessing, model and post-processing, without Flink."""

import numpy as np
import pytest
import torch
from onnx import helper

from cluster_serving.client.original.values import encode_png
from cluster_serving.job.options import ImageOptions, ModelOptions
from cluster_serving.job.predictor import Predictor
from cluster_serving.job.request import Request
from cluster_serving.protocol.entry import NATIVE, Entry
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.inputs import Image
from cluster_serving.protocol.results import decode_arrays
from tests.support.fixtures.predictor import predictor, save_doubling, save_overlapping
from tests.support.payloads import model_zoo


@pytest.mark.parametrize(
    ("text", "shape", "problem"),
    [
        (
            "topN(3)",
            (2, 5),
            r"topN\(3\) does not fit the model: topN needs one vector .* 'y' is float32 of shape \[2, 5\]",
        ),
        (
            "pickTopN(3)",
            (5,),
            r"pickTopN\(3\) does not fit .* pickTopN needs rows; output 'y' is float32 of shape \[5\]",
        ),
    ],
)
@pytest.mark.parametrize("already_batched", [False, True])
def test_a_filter_that_does_not_fit_the_model_is_refused_at_start(tmp_path, text, shape, problem, already_batched):
    save_doubling(tmp_path, *shape)
    if already_batched and text.startswith("pick"):
        # The batch itself is a table.
        assert predictor(tmp_path, text, already_batched).report().post_processing == text
        return
    with pytest.raises(ModelError, match=problem.replace(r"\[2", r"\[1, 2") if already_batched else problem):
        predictor(tmp_path, text, already_batched)


@pytest.mark.parametrize(
    ("text", "shape"), [("topN(3)", (5,)), ("topN(3)", (1, 5, 1)), ("pickTopN(1)", (2, 5)), ("", ())]
)
def test_a_filter_that_fits_is_taken(tmp_path, text, shape):
    save_doubling(tmp_path, *shape)
    assert predictor(tmp_path, text).report().post_processing == text


def test_a_model_of_free_sizes_is_given_the_benefit_of_the_doubt(tmp_path):
    save_doubling(tmp_path, -1, 5)
    assert predictor(tmp_path, "topN(3)").report().post_processing == "topN(3)"


@pytest.mark.parametrize("text", ["pickTopN(3)", "argmax | topN(1)", "topN(2) | softmax"])
def test_a_filter_that_fits_no_size_of_an_output_is_refused_where_sizes_are_free(tmp_path, text):
    save_doubling(tmp_path, -1)
    with pytest.raises(ModelError, match=r"does not fit the model: .* needs"):
        predictor(tmp_path, text)


def test_a_filter_is_refused_by_the_shape_of_an_output_where_zeros_of_guessed_sizes_cannot_be_computed(tmp_path):
    from openvino import opset13 as ops

    x = ops.parameter([-1, -1], np.float32, name="x")
    table = ops.reshape(x, np.array([-1, 7919, 4]), False)
    model_zoo.save_openvino(tmp_path, {"x": x}, {"y": ops.reduce_mean(table, [1], False)})
    with predictor(tmp_path, "topN(2)") as model:
        assert model.report().untried
    with pytest.raises(ModelError, match=r"pickTopN needs rows; output 'y' is float32 of shape \[4\]"):
        predictor(tmp_path, "pickTopN(3)")


def test_large_images_are_decoded_by_other_threads_and_small_ones_beside_them(tmp_path):
    """Each request gets its own answer, also beside damaged images."""
    model_zoo.save_openvino_digit_images(tmp_path)
    model = predictor(tmp_path, "", thread_per_model=2, image=ImageOptions(resize=(8, 8)))
    sizes = [8, 400, 8, 400, 400, 8, 8, 400]
    pictures = [encode_png("x", np.full((s, s, 3), 30 * number, np.uint8)).data for number, s in enumerate(sizes)]
    pictures[4], pictures[5], pictures[6] = pictures[4][:80], pictures[5][:40], b"no image"
    requests = [
        Request(Entry(b"1-%d" % number, str(number), b"", NATIVE), {"image": Image(picture)})
        for number, picture in enumerate(pictures)
    ]
    together = [answer.fields for answer in model.start(requests, alone=True).answers()]
    alone = [model.start([request], alone=True).answers()[0].fields for request in requests]
    assert [fields.get("code") for fields in together] == [None] * 4 + ["INVALID_INPUT"] * 3 + [None]
    assert [fields.get("error") for fields in together] == [fields.get("error") for fields in alone]
    for one, other in zip(together, alone, strict=True):
        if "code" not in one:
            np.testing.assert_allclose(_output(one), _output(other), atol=1e-3)
    model.close()


def _answers(model, *records):
    requests = [Request(Entry(b"1-0", "u", b"", NATIVE), record) for record in records]
    return [answer.fields for answer in model.start(requests, alone=False).answers()]


@pytest.mark.parametrize("already_batched", [False, True])
def test_the_number_of_dimensions_tells_whether_a_request_is_a_batch(tmp_path, already_batched):
    save_doubling(tmp_path, 3)
    model = predictor(tmp_path, "", already_batched)
    single, batch = np.arange(3, dtype="f4"), np.ones((2, 3), "f4")
    assert [_output(fields).tolist() for fields in _answers(model, {"x": single}, {"x": single})] == [[0, 2, 4]] * 2
    assert [_output(fields).shape for fields in _answers(model, {"x": batch}, {"x": batch})] == [(2, 3), (2, 3)]
    (large,) = _answers(model, {"x": np.ones((33, 3), "f4")})
    if already_batched:
        assert _output(large).shape == (33, 3)
    else:
        assert "a batch of 33 records; at most 32 are taken (maxBatchSize)" in large["error"]


@pytest.mark.parametrize("already_batched", [False, True])
def test_openvino_takes_single_images_as_in_2_x(tmp_path, already_batched):
    model_zoo.save_openvino_digit_images(tmp_path)
    model = predictor(tmp_path, "", already_batched)
    (fields,) = _answers(model, {"image": encode_png("image", np.zeros((8, 8, 3), np.uint8))})
    assert _output(fields).shape == (10,)


def _output(fields):
    fields = {key.encode(): getattr(value, "encode", lambda value=value: value)() for key, value in fields.items()}
    return next(iter(decode_arrays(fields).values()))


def test_a_record_on_which_an_overlapping_model_fails_is_an_error_of_its_request(tmp_path):
    save_overlapping(tmp_path)
    overlapping = predictor(tmp_path, "", thread_per_model=2)
    assert overlapping.overlaps
    records = np.ones((4, 3, 64, 64), "f4")
    records[2, 0, 0, 0] = 6
    requests = [Request(Entry(b"1-0", str(i), b""), {"x": record}) for i, record in enumerate(records)]
    answers = overlapping.start(requests, alone=False).answers()
    assert ["code" in answer.fields for answer in answers] == [False, False, True, False]
    assert answers[2].fields["code"] == "INFERENCE_FAILED"
    overlapping.close()


def test_a_single_string_per_record_is_answered(tmp_path):
    from onnx import helper

    node = helper.make_node("Identity", ["x"], ["y"])
    model_zoo.save_onnx(tmp_path, [node], {"x": ("STRING", ["n"])}, {"y": ("STRING", ["n"])})
    texts = ["cat", "zwölf", ""]
    requests = [Request(Entry(b"1-0", "u", b"", NATIVE), {"x": np.array(text, object)}) for text in texts]
    answers = predictor(tmp_path, "").start(requests, alone=True).answers()
    assert [_output(answer.fields).item() for answer in answers] == texts


class Growing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        outputs = [x]
        if bool((x > 1).any()):
            outputs.append(x + 1)
        return outputs


def test_a_model_that_returns_other_outputs_than_at_first_fails_that_request_alone(tmp_path):
    model_zoo.save_torchscript(tmp_path, Growing())
    model = predictor(tmp_path, "", input_shapes=((2,),))
    requests = [Request(Entry(b"1-0", "u", b"", NATIVE), {"x": np.full(2, i, "f4")}) for i in (0, 1, 2)]
    answers = model.start(requests, alone=True).answers()
    assert ["code" in answer.fields for answer in answers] == [False, False, True]
    assert "output_1" in answers[2].fields["error"]


def test_records_that_take_much_memory_are_computed_in_several_calls(tmp_path, monkeypatch):
    save_doubling(tmp_path, 4)
    model = predictor(tmp_path, "")
    sizes = []
    predict = model.servable.model.predict
    monkeypatch.setattr(model.servable.model, "predict", lambda inputs: sizes.append(len(inputs[0])) or predict(inputs))
    monkeypatch.setattr("cluster_serving.job.predicting._MAX_BATCH_BYTES", 40)
    records = np.arange(20, dtype="f4").reshape(5, 4)
    requests = [Request(Entry(b"1-0", str(i), b"", NATIVE), {"x": record}) for i, record in enumerate(records)]
    answers = model.start(requests, alone=True).answers()
    assert sizes == [3, 2]
    np.testing.assert_array_equal([_output(answer.fields) for answer in answers], 2 * records)


def test_a_report_says_that_nothing_was_computed_until_something_was(tmp_path):
    # Fails on each size but large ones, which nothing tells.
    far = helper.make_node("Gather", ["x", "index"], ["y"], axis=1)
    ports = ({name: ("FLOAT", ["n", None])} for name in "xy")
    model_zoo.save_onnx(tmp_path, [far], *ports, {"index": np.array([400_000])})
    with Predictor(ModelOptions(str(tmp_path))) as predictor:
        assert "it has computed nothing yet: ONNX Runtime failed" in predictor.report().summary
        (outputs,) = predictor.predict([{"x": np.ones(500_000, np.float32)}])
        np.testing.assert_array_equal(outputs["y"], [1])
        assert predictor.report().untried == "" and "nothing" not in predictor.report().summary
