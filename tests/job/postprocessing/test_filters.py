"""Filters."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cluster_serving.client.original.values import as_original
from cluster_serving.client.result import read_result
from cluster_serving.job.postprocessing.filters import make_encoder, pick_top_n, sigmoid, top_n
from cluster_serving.protocol.errors import InferenceFailed, ModelError
from cluster_serving.protocol.original import image_stream
from cluster_serving.protocol.results import to_fields
from tests.support.worlds.distributions import install


def test_top_n_is_descending_and_keeps_the_order_of_equals():
    assert top_n("y", np.array([3.0, 2, 1, 4, 5]), 2) == [(4, 5.0), (3, 4.0)]
    assert top_n("y", np.array([1, 7, 7]), 2) == [(1, 7.0), (2, 7.0)]
    assert len(top_n("y", np.arange(3), 10)) == 3
    assert top_n("y", np.array([[[2.0, 9.0]]]), 1) == [(1, 9.0)]
    assert top_n("y", np.array([2, 9, 9], "u1"), 1) == [(1, 9.0)]
    assert top_n("y", np.zeros(0), 1) == []


def test_top_n_counts_nan_as_less_than_all_numbers():
    values = np.array([np.nan, -np.inf, 3, np.nan, 3], "f4")
    assert [[index for index, _ in top_n("y", values, count)] for count in (1, 2, 3, 4)] == [
        [2], [2, 4], [2, 4, 1], [2, 4, 1, 0]
    ]  # fmt: skip


@pytest.mark.parametrize("output", [np.zeros((2, 3)), np.array(1.0), np.array(["a"], object)])
def test_top_n_of_anything_but_a_vector_is_an_error(output):
    with pytest.raises(InferenceFailed, match="topN needs one vector"):
        top_n("y", output, 1)


def test_pick_top_n_keeps_the_first_rows():
    rows = np.arange(6).reshape(3, 2)
    assert pick_top_n("y", rows, 2).tolist() == [[0, 1], [2, 3]]
    assert pick_top_n("y", rows[np.newaxis], 1).tolist() == [[0, 1]]
    with pytest.raises(InferenceFailed, match="expected 2-D"):
        pick_top_n("y", np.zeros(3), 1)
    assert make_encoder("pickTopN(2)")(False, ["y"], [rows])["pickTopN"] == "[[0.0,1.0][2.0,3.0]]"


def test_clients_of_0_7_and_0_8_read_different_texts():
    for text, expected in (("topN(2)", "[[2,37.4][0,0.1]]"), ("top_n(2)", '{"2":"37.4","0":"0.1"}')):
        fields = make_encoder(text)(False, ["y"], [np.array([0.1, 0, 37.4], "f4")])
        assert image_stream.early_result(fields) == {"value": expected}
        assert as_original(read_result({b"topN": b"", b"value": fields["value"].encode()})).shape == (2, 2)


@pytest.mark.parametrize(
    "text", ["topN", "topN()", "topN(0)", "topN(1,2)", "softmax(1)", "topN(-1)", "best", "threshold(a)", "softmax |"]
)
def test_an_unknown_filter_is_refused(text):
    with pytest.raises(ModelError, match="expected topN"):
        make_encoder(text)


def filtered(text, *output, folder=Path()):
    names = [f"y{index}" for index in range(len(output))]
    return read_result(to_fields(make_encoder(text, folder)(True, names, [np.asarray(one) for one in output])))


def test_filters_compute_one_after_the_other(tmp_path):
    (tmp_path / "labels.txt").write_text("cat\ndog\nzebra\n", "utf-8-sig")
    logits = np.array([1.0, 3.0, 2.0], "f4")
    odds = filtered("softmax", logits)
    assert odds.dtype == np.float32
    np.testing.assert_allclose(odds, np.exp(logits) / np.exp(logits).sum(), rtol=1e-6)
    np.testing.assert_allclose(filtered("softmax", np.array([[1000.0, 0], [0, 0]])), [[1, 0], [0.5, 0.5]])
    assert filtered("argmax", logits).value.item() == 1
    assert filtered("argmax", np.eye(3)[[2, 0]]).tolist() == [2, 0]
    assert filtered("threshold(2)", logits).top_n == [(1, 3.0), (2, 2.0)]
    assert filtered("threshold(-1e3) | topN(1)", logits).top_n == [(1, 3.0)]
    assert filtered("topN(2) | threshold(2.5)", logits).top_n == [(1, 3.0)]
    assert filtered("threshold(9)", logits).top_n == []
    # As numbers of float32, in which clients read it; in float64 it would be a little less.
    assert filtered("threshold(0.9)", np.array([0.9, 0.8], "f4")).top_n == [(0, pytest.approx(0.9))]
    two = filtered("argmax|labels(labels.txt)", logits, -logits, folder=tmp_path)
    assert (two["y0"].item(), two["y1"].item()) == ("dog", "cat")
    ranked = filtered("softmax | topN(2) | labels(labels.txt)", logits, folder=tmp_path).value.item()
    assert [(row["class"], row["label"]) for row in ranked] == [(1, "dog"), (2, "zebra")]
    assert (
        filtered("topN(1) | labels(labels.txt)", np.array([0.1], "f4"), folder=tmp_path).value.item()[0]["prob"] == 0.1
    )


def test_a_filter_that_does_not_fit_says_what_it_needs(tmp_path):
    (tmp_path / "labels.txt").write_text("cat")
    for text, output, problem in (
        ("softmax", np.array("text", object), "softmax needs an array of numbers per record; output 'y0' is object"),
        ("threshold(1)", np.eye(2), "threshold needs one vector of numbers"),
        ("topN(1) | softmax", np.ones(2), "softmax needs .* is a ranking"),
        ("labels(labels.txt)", np.ones(2), "labels needs whole numbers"),
        ("argmax | labels(labels.txt)", np.array([0, 1]), "output 'y0' has class 1, and labels.txt has 1 labels"),
    ):
        with pytest.raises(InferenceFailed, match=problem):
            filtered(text, output, folder=tmp_path)
    with pytest.raises(ModelError, match=r"labels\(none.txt\)': .*No such file"):
        make_encoder("labels(none.txt)", tmp_path)


def test_a_distribution_adds_a_filter(tmp_path):
    install(
        tmp_path,
        "my-filters",
        "def times(argument, folder): return lambda name, output: output * int(argument)",
        "times = constants:times",
        "cluster_serving.postprocessors",
    )
    code = (
        "import numpy as np\n"
        "from cluster_serving.job.postprocessing.filters import make_encoder\n"
        "from cluster_serving.launcher.config.values import _filter\n"
        "text = _filter('times(3) | topN(1)')\n"
        "print(make_encoder(text)(False, ['y'], [np.array([1, 2])])['topN'])"
    )
    environment = {"PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout == "[[1,6.0]]\n", ran.stderr


def test_sigmoid_of_each_number():
    values = np.array([0, 2, -2, 1000, -1000], "f4")
    found = sigmoid("y", values)
    assert found.dtype == "f4"
    np.testing.assert_allclose(found, [0.5, 0.8807971, 0.1192029, 1, 0], atol=1e-7)
    assert sigmoid("y", np.array([0.5])).dtype == "f8"
    fields = make_encoder("sigmoid | topN(1)")(False, ["y"], [values])
    assert fields == make_encoder("topN(1)")(False, ["y"], [found])
