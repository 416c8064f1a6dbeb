"""How requests of the v2 protocol become records, and answers a batch."""

import numpy as np
import pytest

from cluster_serving.frontend.api.v2.batch import RecordsRequest, to_records
from cluster_serving.frontend.api.v2.datatypes import from_bytes
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput, RequestTooLarge
from cluster_serving.protocol.inputs import Image
from cluster_serving.protocol.results import decode_outputs, encode_ranked
from cluster_serving.protocol.slots import SlotReport, TensorSpec


def report(*specs, **changes):
    return SlotReport("", "ready", "Test", specs, (TensorSpec("y", "float32", (None, 5)),), **changes)


PICTURES = TensorSpec("image", "float32", (None, 3, 8, 8))
WORDS = TensorSpec("words", "str", (None,))
SCALARS = TensorSpec("n", "int64", (None,))


def test_a_batch_is_split_into_records_of_the_models_shape():
    inputs = {
        "image": np.arange(2 * 3 * 64, dtype="f4").reshape(2, 3, 8, 8),
        "words": from_bytes("words", (2,), ["ä".encode(), b""]),
        "n": np.array([5, 6]),
    }
    batch = to_records(inputs, report(PICTURES, WORDS, SCALARS), 10)
    assert len(batch.records) == 2
    np.testing.assert_array_equal(batch.records[1]["image"], inputs["image"][1])
    assert [record["n"].shape for record in batch.records] == [(), ()]
    assert [record["n"].item() for record in batch.records] == [5, 6]
    assert [record["words"].item() for record in batch.records] == ["ä", ""]


@pytest.mark.parametrize("batched", [False, True])
def test_single_values_need_not_have_the_dimensions_of_their_records(batched):
    column = TensorSpec("n", "int64", (None, 1))
    batch = to_records({"n": np.array([5, 6])}, report(column, already_batched=batched), 10)
    assert [record["n"].tolist() for record in batch.records] == ([[[5], [6]]] if batched else [[5], [6]])


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("name", ["n", "input-0", "input-1", "predict", "input__0", "INPUT0"])
def test_a_column_of_mlservers_codecs_is_a_batch_of_the_only_input(name, batched):
    batch = to_records({name: np.array([[5], [6]])}, report(SCALARS, already_batched=batched), 10)
    assert [record["n"].tolist() for record in batch.records] == ([[5, 6]] if batched else [5, 6])
    texts = to_records({"words" if name == "n" else name: from_bytes("", (2, 1), [b"a", b"b"])}, report(WORDS), 10)
    assert [record["words"].item() for record in texts.records] == ["a", "b"]


def test_names_of_mlservers_codecs_stand_for_no_input_of_several_or_of_a_table():
    for name in ("input-1", "predict"):
        with pytest.raises(InvalidInput, match=f"the request has the inputs '{name}'; the model expects words.*, n"):
            to_records({name: np.zeros(1)}, report(WORDS, SCALARS), 10)
        with pytest.raises(InvalidInput, match=f"the request has the inputs '{name}'; the model expects age"):
            to_records({name: np.zeros(1)}, report(TensorSpec("age", "float32", (None,), column="yes")), 10)
    spaced = report(TensorSpec("the_age", "float32", (None,), column="yes"))
    assert to_records({"the age": np.zeros((1, 1))}, spaced, 10).records[0].keys() == {"the_age"}


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_bytes_for_numbers_are_images(shape):
    files = from_bytes("image", shape, [b"\xff\xd8first", b"\xff\xd8second"])
    records = to_records({"image": files}, report(PICTURES), 10).records
    assert list(records) == [{"image": Image(b"\xff\xd8first")}, {"image": Image(b"\xff\xd8second")}]
    with pytest.raises(InvalidInput, match=r"BYTES of shape \[1, 2\]; expected \[-1\]"):
        to_records({"image": files.reshape(1, 2)}, report(PICTURES), 10)


@pytest.mark.parametrize("shape", [(None,), (None, 1)])
def test_bytes_for_single_numbers_are_their_texts(shape):
    column = TensorSpec("n", "float64", shape, column="yes")
    batch = to_records({"n": from_bytes("n", (3,), [b" 5", b"1e3", None])}, report(column), 10)
    np.testing.assert_array_equal([record["n"].item() for record in batch.records], [5, 1000, np.nan])
    with pytest.raises(InvalidInput, match=r"^input 'n': n\[1\]\S* is 'red'; expected a number; the model expects n: "):
        to_records({"n": from_bytes("n", (2,), [b"5", b"red"])}, report(column), 10)


def test_jobs_that_take_batches_get_images_one_by_one():
    inputs = {"image": from_bytes("image", (2,), [b"a", b"b"]), "n": np.array([5, 6])}
    batch = to_records(inputs, report(PICTURES, SCALARS, already_batched=True), 10)
    assert [record["image"] for record in batch.records] == [Image(b"a"), Image(b"b")]
    assert [record["n"].tolist() for record in batch.records] == [[5], [6]]
    answers = [{"y": np.array([[1.0, 2.0]])}, {"y": np.array([[3.0, 4.0]])}]
    assert batch.merge(answers, report(), {})["y"].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ({"n": np.zeros((2, 2), "i8")}, InvalidInput, r"'n' has shape \[2, 2\]; expected \[-1\]"),
        ({"n": np.zeros((1, 2), "i8")}, InvalidInput, r"'n' has shape \[1, 2\]; expected \[-1\]"),
        ({"n": np.zeros((), "i8")}, InvalidInput, r"'n' has shape \[\]; expected \[-1\]"),
        ({"n": np.zeros(0, "i8")}, InvalidInput, "the batch is empty"),
        ({"n": np.zeros(11, "i8")}, RequestTooLarge, "input 'n' has 11 records, which count as 11264 bytes"),
        ({}, InvalidInput, r"inputs none; the model expects n: int64\[\?\]"),
        ({"m": np.zeros(1, "i8")}, InvalidInput, r"inputs 'm'; the model expects n"),
    ],
)
def test_what_is_no_batch_is_refused(inputs, error, message):
    with pytest.raises(error, match=message):
        to_records(inputs, report(SCALARS), 10)


def test_a_model_that_does_not_say_its_shape_takes_any_batch():
    any_shape = report(TensorSpec("x", "", None))
    assert len(to_records({"x": np.zeros((3, 4, 5))}, any_shape, 10).records) == 3
    with pytest.raises(InvalidInput, match="'x' is a scalar"):
        to_records({"x": np.zeros(())}, any_shape, 10)


def test_a_handler_that_declares_no_inputs_is_told_how():
    with pytest.raises(InvalidInput, match=r'declares no inputs, .* such as inputs = \{"x": "float32\[4\]"\}'):
        to_records({"x": np.zeros((1, 4))}, report(), 10)


def test_rankings_become_classes():
    fields = encode_ranked(True, ["y"], [[(4, 0.1), (1, 0.05)]])
    answer = decode_outputs({b"serde": b"arrow", b"value": fields["value"], b"topN": b""})
    ranked = report(post_processing="topN(2)")
    assert RecordsRequest([], False).merge([answer, answer], ranked, {})["y"].tolist() == [["0.1:4", "0.05:1"]] * 2
    assert RecordsRequest([], False).merge([answer], ranked, {"y": 1})["y"].tolist() == [["0.1:4"]]
    with pytest.raises(InvalidInput, match="no output 'z'; it has: y"):
        RecordsRequest([], False).merge([answer], ranked, {"z": 0})


def test_answers_of_different_shapes_are_no_batch():
    with pytest.raises(InferenceFailed, match=r"'y' differs in shape between the records: \[2\], \[3\]"):
        RecordsRequest([], False).merge([{"y": np.zeros(2)}, {"y": np.zeros(3)}], report(), {})
