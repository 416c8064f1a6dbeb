"""Filters."""

import numpy as np
import pytest

from cluster_serving.client.original.values import as_original
from cluster_serving.client.result import read_result
from cluster_serving.job.postprocessing import make_encoder, pick_top_n, top_n
from cluster_serving.protocol.errors import InferenceFailed, ModelError
from cluster_serving.protocol.original import image_stream


def test_top_n_is_descending_and_keeps_the_order_of_equals():
    assert top_n("y", np.array([3.0, 2, 1, 4, 5]), 2) == [(4, 5.0), (3, 4.0)]
    assert top_n("y", np.array([1, 7, 7]), 2) == [(1, 7.0), (2, 7.0)]
    assert len(top_n("y", np.arange(3), 10)) == 3
    assert top_n("y", np.array([[[2.0, 9.0]]]), 1) == [(1, 9.0)]


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
        assert image_stream.result_fields(fields) == {"value": expected}
        assert as_original(read_result({b"topN": b"", b"value": fields["value"].encode()})).shape == (2, 2)


@pytest.mark.parametrize("text", ["topN", "topN()", "topN(0)", "topN(1,2)", "softmax(1)", "topN(-1)"])
def test_an_unknown_filter_is_refused(text):
    with pytest.raises(ModelError, match="expected topN"):
        make_encoder(text)
