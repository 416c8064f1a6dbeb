"""Results, as applications use them."""

import asyncio
import copy
import pickle
from functools import partial

import numpy as np
import pytest

from cluster_serving.client import AsyncInputQueue, AsyncOutputQueue, InputQueue, InvalidInput, OutputQueue, Result
from cluster_serving.client.result import failed, read_result
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.results import encode_error, encode_ranked, encode_result

ONE = Result({"y": np.array([[1.0, 2.0], [3.0, 4.0]], "f4")})
TWO = Result({"boxes": np.zeros((2, 4)), "labels": np.array(["cat", "dog"], object)})
RANKING = [(2**24 + 1, 0.75), (8, 0.25)]


def as_read(fields):
    return {name.encode(): value if isinstance(value, bytes) else value.encode() for name, value in fields.items()}


def test_a_single_output_is_used_like_its_array():
    assert (ONE.shape, ONE.dtype, ONE.sum(), len(ONE)) == ((2, 2), np.float32, 10, 2)
    assert ONE[1].tolist() == ONE["y"][1].tolist() == [3, 4]
    assert [row.tolist() for row in ONE] == ONE.tolist() == [[1, 2], [3, 4]]
    np.testing.assert_array_equal(2 * ONE - ONE, ONE)
    assert np.argmax(ONE) == 3
    assert np.maximum(ONE, 2, out=np.zeros((2, 2))).min() == 2
    assert np.stack([ONE, ONE]).shape == (2, 2, 2)
    assert np.asarray(ONE, "f8").dtype == np.float64
    assert (ONE > 2).tolist() == [[False, False], [True, True]]
    scalar = Result({"y": np.array(3, "i8")})
    assert (int(scalar), float(scalar), bool(scalar), scalar.item()) == (3, 3.0, True, 3)
    assert repr(scalar) == "Result(y=array(3))"


def test_several_outputs_are_found_by_name():
    assert list(TWO.outputs) == ["boxes", "labels"]
    assert TWO["labels"].tolist() == ["cat", "dog"]
    with pytest.raises(KeyError, match="no output 'scores'; it has boxes, labels"):
        TWO["scores"]
    for use in (np.asarray, len, list, bool, lambda result: result[0], lambda result: result + 1):
        with pytest.raises(ValueError, match=r"has the outputs boxes, labels; choose one, as in result\['boxes'\]"):
            use(TWO)
    assert not hasattr(TWO, "shape")


@pytest.mark.parametrize("native", [True, False])
def test_a_ranking_is_classes_and_an_array(native):
    result = read_result(as_read(encode_ranked(native, ["y"], [RANKING[native - 1 :]])))
    assert result.top_n == RANKING[native - 1 :]
    assert isinstance(result.top_n[0][0], int)
    assert result.shape == (len(result.top_n), 2)
    with pytest.raises(ValueError, match=r"needs postProcessing: topN\(n\)"):
        _ = ONE.top_n


def test_rankings_of_several_outputs_keep_their_names():
    result = read_result(as_read(encode_ranked(True, ["a", "b"], [RANKING, RANKING[:1]])))
    assert {name: ranking.tolist() for name, ranking in result.outputs.items()} == {
        "a": [[2**24 + 1, 0.75], [8, 0.25]],
        "b": [[2**24 + 1, 0.75]],
    }


def test_results_can_be_copied_and_pickled():
    for other in (copy.deepcopy(ONE), pickle.loads(pickle.dumps(ONE))):  # noqa: S301
        np.testing.assert_array_equal(other, ONE)
        assert other.error is None


def test_every_use_of_a_failed_result_raises_its_error():
    result = failed(InvalidInput("why"))
    attributes = [partial(getattr, result, name) for name in ("value", "outputs", "top_n", "shape")]
    for use in (*attributes, lambda: result["y"], lambda: np.asarray(result)):
        with pytest.raises(InvalidInput, match="why"):
            use()
    assert repr(result) == "Result(error=InvalidInput('why'))"


def test_both_clients_give_results(redis_server, db, job, echo):
    x = np.arange(3, dtype="f4")

    def check(queried, taken, predicted):
        assert [type(result) for result in (predicted, queried, *taken.values())] == [Result] * 4
        assert predicted["x"].tolist() == queried["x"].tolist() == taken["a"].tolist() == [0, 1, 2]
        assert (taken["a"].error, str(taken["b"].error)) == (None, "why")
        # Jobs that are older than versions tell none.
        assert (predicted.version, taken["a"].version) == ("1", None)
        assert (taken["b"].version, taken["b"].error.version) == ("2", "2")

    def prepare():
        db.hset(JobKeys(job).result("a"), mapping=encode_result(True, ["x"], [x]))
        db.hset(JobKeys(job).result("b"), mapping=encode_error(InvalidInput("why")) | {"version": "2"})

    async def main():
        async with (
            AsyncInputQueue(port=redis_server.port, name=job) as requests,
            AsyncOutputQueue(port=redis_server.port, name=job) as results,
        ):
            check(await results.query("a"), await results.dequeue(), await requests.predict({"x": x}, 30))
            with pytest.raises(InvalidInput, match="no inputs"):
                await requests.predict({})

    prepare()
    with (
        InputQueue(port=redis_server.port, name=job) as requests,
        OutputQueue(port=redis_server.port, name=job) as results,
    ):
        check(results.query("a"), results.dequeue(), requests.predict({"x": x}, 30))
    prepare()
    asyncio.run(main())
