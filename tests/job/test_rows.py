"""Requests of several records in one entry: they are computed as rows, and answered as if each came alone."""

import numpy as np
import pytest

from cluster_serving.job.models.base import Model
from cluster_serving.job.options import ModelOptions
from cluster_serving.job.parts import Parts
from cluster_serving.job.predictor import Predictor
from cluster_serving.job.request import Request
from cluster_serving.protocol import columns
from cluster_serving.protocol.entry import NATIVE, Entry
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput
from cluster_serving.protocol.results import to_fields
from tests.support.fixtures.predictor import predictor, save_doubling


def column(uri, x):
    """A request of several records."""
    entry = Entry(b"1-0", uri, b"", NATIVE, records=b"%d" % len(x))
    return Request(entry, {"x": np.asarray(x)}, part=0, rows=len(x))


def single(uri, x):
    return Request(Entry(b"2-0", uri, b"", NATIVE), {"x": np.asarray(x)})


def outcomes(answers):
    """What the records of whole entries get, by uri."""
    whole = Parts().whole(answers)
    return {
        answer.entry.uri: [*columns.outcomes(to_fields(answer.fields), answer.entry.record_count)] for answer in whole
    }


@pytest.fixture
def doubling(tmp_path):
    save_doubling(tmp_path, 2)
    with predictor(tmp_path, "") as loaded:
        yield loaded


@pytest.fixture
def sizes(monkeypatch):
    """Sizes of the batches that models compute from now on."""
    found = []
    predict = Model.predict

    def counted(model, inputs):
        found.append(len(inputs[0]))
        return predict(model, inputs)

    monkeypatch.setattr(Model, "predict", counted)
    return found


def test_entries_of_several_records_and_of_one_are_one_call(doubling, sizes):
    first, last = np.arange(6, dtype="f4").reshape(3, 2), np.ones((2, 2), "f4")
    requests = [column("a", first), single("b", np.float32([7, 8])), column("c", last)]
    found = outcomes(doubling.start(requests, alone=True).answers())
    assert set(sizes) == {6}
    assert [outcome["y"].tolist() for outcome in found["a"]] == (2 * first).tolist()
    assert found["b"][0]["y"].tolist() == [14, 16]
    assert [outcome["y"].tolist() for outcome in found["c"]] == (2 * last).tolist()


def test_an_entry_that_is_cut_is_answered_when_all_of_it_is(doubling):
    x = np.arange(10, dtype="f4").reshape(5, 2)
    head, rest = column("a", x).cut(2)
    parts = Parts()
    # The second part may be answered first.
    (later,) = doubling.start([rest], alone=True).answers()
    assert parts.whole([later]) == []
    (answer,) = parts.whole(doubling.start([head], alone=True).answers())
    found = columns.outcomes(to_fields(answer.fields), 5)
    assert [outcome["y"].tolist() for outcome in found] == (2 * x).tolist()


def test_a_second_delivery_of_an_entry_is_complete_by_itself(doubling):
    x = np.ones((4, 2), "f4")
    head, _ = column("a", x).cut(2)
    parts = Parts()
    assert parts.whole(doubling.start([head], alone=True).answers()) == []
    (answer,) = parts.whole(doubling.start([column("a", x)], alone=True).answers())
    assert len(columns.outcomes(to_fields(answer.fields), 4)) == 4


def test_values_of_other_types_are_converted_for_all_records_or_refused_for_each(doubling):
    good = column("good", np.array([[1, 2], [3, 4]], "i8"))
    assert [each["y"].tolist() for each in outcomes(doubling.start([good], True).answers())["good"]] == [[2, 4], [6, 8]]
    wrong = column("wrong", np.array([[1, 2, 3]] * 2, "f4"))
    (one, other) = outcomes(doubling.start([wrong], True).answers())["wrong"]
    assert isinstance(one, InvalidInput) and str(one) == str(other)
    large = column("large", np.array([[1, 2], [1e300, 4]]))
    first, second = outcomes(doubling.start([large], True).answers())["large"]
    assert first["y"].tolist() == [2, 4]
    assert isinstance(second, InvalidInput) and "expected a number of at most 3.4e+38 (float32)" in str(second)


def test_a_record_on_which_the_call_fails_fails_alone_and_the_call_is_not_repeated(doubling, sizes, monkeypatch):
    counted = Model.predict

    def picky(model, inputs):
        outputs = counted(model, inputs)
        if (inputs[0] == 13).any():
            raise InferenceFailed("unlucky")
        return outputs

    monkeypatch.setattr(Model, "predict", picky)
    x = np.arange(16, dtype="f4").reshape(8, 2)
    found = outcomes(doubling.start([column("a", x)], alone=True).answers())["a"]
    assert [isinstance(each, InferenceFailed) for each in found] == [False] * 6 + [True, False]
    assert "unlucky" in str(found[6])
    assert found[7]["y"].tolist() == [28, 30]
    assert sizes.count(8) == 1


def test_records_of_filters_have_results_of_their_own(tmp_path):
    save_doubling(tmp_path, 3)
    with predictor(tmp_path, "topN(1)") as ranking:
        found = outcomes(ranking.start([column("a", np.float32([[1, 2, 3], [6, 5, 4]]))], alone=True).answers())
    assert found["a"] == [[[(2, 6.0)]], [[(0, 12.0)]]]


def test_a_program_gets_the_outputs_of_each_record(tmp_path):
    save_doubling(tmp_path, 2)
    with Predictor(ModelOptions(str(tmp_path))) as doubling:
        assert [each["y"].tolist() for each in doubling.predict([{"x": [1, 2]}, {"x": [3, 4]}])] == [[2, 4], [6, 8]]
