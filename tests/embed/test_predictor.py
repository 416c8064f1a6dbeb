"""The predictor that programs embed: columns, records, copies and versions."""

import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

from cluster_serving import Predictor
from cluster_serving.client.original.values import encode_png
from cluster_serving.embed import copies
from cluster_serving.job.models.base import TensorSpec
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput, ModelError
from tests.support.fixtures.predictor import save_doubling, save_overlapping
from tests.support.payloads import model_zoo
from tests.support.payloads.texts import save_reader

HANDLER = """
class Handler:
    inputs = {"text": "str"}
    outputs = {"upper": "str"}

    def load(self, context):
        pass

    def predict(self, batch):
        return {"upper": [text.upper() for text in batch["text"]]}
"""


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    model_zoo.save_onnx_digits(folder)
    return folder


def test_columns_give_columns_with_the_rows_of_the_model(digits):
    x, labels = model_zoo.digits_data()
    outputs = Predictor(digits)({"x": x})
    assert list(outputs) == ["probabilities"]
    np.testing.assert_allclose(outputs["probabilities"], model_zoo.digits_mlp(x), atol=1e-5)
    assert (outputs["probabilities"].argmax(1) == labels).mean() > 0.9


def test_any_number_of_rows_gives_the_same_answers(digits):
    x, _ = model_zoo.digits_data()
    many = np.tile(x, (6, 1))[:2391]
    outputs = Predictor(digits)({"x": many})["probabilities"]
    np.testing.assert_allclose(outputs, Predictor(digits, max_batch_size=7)({"x": many})["probabilities"], atol=1e-6)


def test_flat_rows_and_nested_lists_take_the_shape_of_the_input(tmp_path):
    save_doubling(tmp_path, 2, 3)
    x = np.arange(12, dtype="float32")
    predictor = Predictor(tmp_path)
    for column in (x.reshape(2, 6), x.reshape(2, 2, 3).tolist()):
        assert (predictor({"x": column})["y"] == 2 * x.reshape(2, 2, 3)).all()


def test_a_column_of_numbers_fits_an_input_of_one_value(tmp_path):
    save_doubling(tmp_path, 1)
    assert Predictor(tmp_path)({"x": [1.0, 2.0]})["y"].tolist() == [[2], [4]]


def test_columns_of_different_lengths_are_refused(digits):
    with pytest.raises(InvalidInput, match="need one length.* 'x' 2, 'y' 3"):
        Predictor(digits)({"x": np.zeros((2, 64)), "y": np.zeros(3)})


def test_an_error_of_a_column_names_its_row(tmp_path):
    save_overlapping(tmp_path)
    images = np.zeros((3, 3, 64, 64), "float32")
    images[1, 0, 0, 0] = 6
    with pytest.raises(InferenceFailed, match="row 1: OpenVINO failed"):
        Predictor(tmp_path)({"x": images})


def test_rows_that_fail_leave_the_others_alone(tmp_path):
    save_overlapping(tmp_path)
    images = np.zeros((40, 3, 64, 64), "float32")
    images[[3, 39], 0, 0, 0] = 6
    scored = Predictor(tmp_path).scored({"x": images})
    assert {row: type(error) for row, error in scored.errors.items()} == {3: InferenceFailed, 39: InferenceFailed}
    assert scored.outputs["y"].shape == (40, 1)


def test_records_differ_and_fail_one_by_one(tmp_path):
    save_doubling(tmp_path, -1)
    first, wrong, third = Predictor(tmp_path).records([{"x": [1.0]}, {"x": "cat"}, {"x": [1.0, 2.0]}])
    assert first["y"].tolist() == [2] and third["y"].tolist() == [2, 4]
    assert isinstance(wrong, InvalidInput)


def test_rows_of_different_sizes_are_a_column_of_objects(tmp_path):
    save_doubling(tmp_path, -1)
    column = [np.ones(2, "float32"), np.ones(3, "float32"), "cat"]
    scored = Predictor(tmp_path).scored({"x": column})
    assert [row if row is None else row.tolist() for row in scored.outputs["y"]] == [[2, 2], [2, 2, 2], None]
    assert list(scored.errors) == [2]


def test_images_are_decoded_and_filters_applied_as_in_the_service(tmp_path):
    model_zoo.save_openvino_digit_images(tmp_path)
    pictures = [encode_png("x", np.full((8, 8, 3), value, np.uint8)).data for value in (0, 90)]
    predictor = Predictor(tmp_path, image_resize=(8, 8), post_processing="topN(2)")
    (ranks,) = predictor({"image": [*pictures]}).values()
    assert [len(ranking) for ranking in ranks] == [2, 2]


def test_texts_are_tokenized(tmp_path):
    save_reader(tmp_path)
    predictor, texts = Predictor(tmp_path, pooling="mean"), ["one two", "three"]
    outputs = predictor({"text": texts})
    alone = predictor.records([{"text": text} for text in texts])
    for name, column in outputs.items():
        np.testing.assert_allclose(column, [record[name] for record in alone], rtol=1e-5)


def test_a_handler_computes_columns(tmp_path):
    (tmp_path / "handler.py").write_text(HANDLER)
    assert Predictor(tmp_path)({"text": ["ab", "c"]})["upper"].tolist() == ["AB", "C"]


def test_predictors_of_equal_settings_share_a_copy_that_their_last_user_frees(digits):
    before = len(copies._copies)
    one, other = Predictor(digits, thread_per_model=1), pickle.loads(pickle.dumps(Predictor(digits)))  # noqa: S301
    assert one.outputs == other.outputs == (TensorSpec("probabilities", "float32", (None, 10)),)
    assert len(copies._copies) == before + 1
    third = Predictor(digits, max_batch_size=3)
    third({"x": np.zeros((1, 64), "float32")})
    assert len(copies._copies) == before + 2
    del one, other, third
    assert len(copies._copies) == before


def test_threads_share_a_predictor(digits):
    x, _ = model_zoo.digits_data()
    predictor, found = Predictor(digits), []
    threads = [threading.Thread(target=lambda: found.append(predictor({"x": x})["probabilities"])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all((one == found[0]).all() for one in found)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_loads_its_own_copy(digits):
    predictor = Predictor(digits)
    predictor({"x": np.zeros((1, 64), "float32")})
    child = os.fork()
    if not child:
        os._exit(0 if predictor({"x": np.zeros((1, 64), "float32")}) and len(copies._copies) >= 2 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_newest_version_answers_and_a_later_one_is_followed(tmp_path, monkeypatch):
    monkeypatch.setattr("cluster_serving.embed.predictor._LOOK_S", 0)
    model_zoo.save_openvino_product(tmp_path / "9", 9)
    model_zoo.save_openvino_product(tmp_path / "10", 10)
    following, fixed = Predictor(tmp_path, follow=True), Predictor(tmp_path)
    (name,) = [spec.name for spec in following.inputs]
    column = {name: np.ones((1, *following.inputs[0].record_shape), "float32")}

    def answers(predictor):
        (output,) = predictor(column).values()
        return output.max(), predictor.version

    assert answers(following) == answers(fixed) == (10, "10")
    (tmp_path / "11").mkdir()
    assert answers(following) == (10, "10")
    model_zoo.save_openvino_product(tmp_path / "11", 11)
    assert answers(following) == (11, "11")
    assert answers(fixed) == (10, "10")
    model_zoo.save_openvino_product(tmp_path, 12)
    assert answers(following) == (11, "11")
    with pytest.raises(ModelError, match="holds both versions of a model"):
        answers(Predictor(tmp_path))


def test_a_model_is_loaded_at_the_first_call(tmp_path):
    predictor = Predictor(tmp_path / "later")
    with pytest.raises(ModelError):
        predictor({"x": [1]})
    model_zoo.save_openvino_product(tmp_path / "later", 3)
    assert predictor.inputs


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 3}, TypeError, "Predictor has no option 'batch_size'; the options are allow_pickle, "),
        ({"thread_per_model": "two"}, ValueError, "thread_per_model='two': Input should be a valid integer"),
        ({"image_color": "CMYK"}, ValueError, "image_color='CMYK': Input should be 'BGR', 'RGB' or 'GRAY'"),
        ({"image_layout": "HCW"}, ValueError, "image_layout='HCW': Input should be '', 'HWC' or 'CHW'"),
    ],
)
def test_wrong_options_are_named(options, error, message):
    with pytest.raises(error, match=message):
        Predictor("model", **options)


def test_the_light_client_does_not_import_the_predictor():
    program = "import sys, cluster_serving.client; print([m for m in sys.modules if 'embed' in m or m == 'pydantic'])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_list_of_another_length_is_the_error_of_its_row(tmp_path):
    save_doubling(tmp_path, 3)
    scored = Predictor(tmp_path).scored({"x": [[1, 2, 3], [4, 5], [7, 8, 9]]})
    assert scored.outputs["y"][[0, 2]].tolist() == [[2, 4, 6], [14, 16, 18]]
    assert list(scored.errors) == [1] and "has shape [2]" in str(scored.errors[1])
    with pytest.raises(InvalidInput, match="a row has lists of different lengths"):
        Predictor(tmp_path).scored({"x": [[1, 2, 3], [[4], [5, 6]]]})
