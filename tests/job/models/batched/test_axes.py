from __future__ import annotations

import numpy as np
import pytest

from cluster_serving.job.models.base import TensorSpec
from cluster_serving.job.models.batched.axes import InputReading, Reading, readings, take


def axes(specs, symbols=(), anywhere=()):
    """The axes of each reading in turn, with the fixed size of the batch if there is one."""
    inputs = [TensorSpec(name, "float32", shape) for name, shape in specs.items()]
    found = readings(inputs, dict(symbols), dict(anywhere))
    return [tuple(place.axis for place in one.places) + ((one.fixed,) if one.fixed else ()) for one in found]


@pytest.mark.parametrize(
    ("specs", "symbols", "first"),
    [
        ({"x": (None, 4)}, {}, (0,)),
        ({"x": (None, 4), "state": (2, None, 8)}, {}, (0, 1)),
        ({"x": (None, 4), "mean": (4,)}, {}, (0, None)),
        ({"x": (None, 4), "t": ()}, {}, (0, None)),
        ({"ids": (None, None), "mask": (None, None)}, {}, (0, 0)),
        ({"x": (None, None, 4)}, {"x": ["time", "batch", ""]}, (1,)),
        ({"x": (None, None, 4)}, {"x": ["T", "N", ""]}, (1,)),
        ({"x": (None, 4), "y": (None, 4)}, {"x": ["unk__1", ""], "y": ["unk__2", ""]}, (0, 0)),
        ({"x": (None, 4), "anchors": (None, 2)}, {"x": ["batch", ""], "anchors": ["k", ""]}, (0, None)),
        ({"x": (1, 4)}, {}, (0, 1)),
        ({"ids": (1, None), "mask": (1, None)}, {}, (0, 0, 1)),
        ({"x": (8, 4)}, {}, (0, 8)),
        ({"x": (8, 4)}, {"x": ["batch", ""]}, (0, 8)),
        ({"state": (2, None, 8)}, {}, (0, 2)),
    ],
)
def test_the_likeliest_axes_come_first(specs, symbols, first):
    assert axes(specs, symbols)[0] == first


def test_the_whole_tensor_comes_last():
    assert axes({"x": (None, 4)}) == [(0,), (None,)]
    assert axes({"state": (2, None, 8)}) == [(0, 2), (1,), (None,)]


def test_an_input_of_records_alone_may_have_the_batch_anywhere():
    found = axes({"x": (None, 4), "h": (None, 2, 8)}, anywhere={"x": (4,), "h": (2, 8)})
    assert found[0] == (0, 0)
    assert (0, 1) in found
    assert (1, 0) not in found


def test_records_are_joined_along_their_axes():
    reading = Reading((InputReading(1, (2,)), InputReading(None, ())))
    x, t = reading.join([[np.array([1, 2]), np.array(7)], [np.array([3, 4]), np.array(8)]])
    np.testing.assert_array_equal(x, [[1, 3], [2, 4]])
    assert t == 7
    np.testing.assert_array_equal(take(x, 1, 1), [3, 4])


def test_a_fixed_batch_repeats_its_records():
    (x,) = Reading((InputReading(0, ()),), fixed=3).join([[np.array(1)], [np.array(2)]])
    assert x.tolist() == [1, 2, 1]


def test_inputs_can_be_said_to_be_whole():
    specs = [TensorSpec("x", "float32", (None, 4)), TensorSpec("edges", "int64", (2, None))]
    symbols = {"x": ["batch", ""], "edges": ["", "batch"]}
    (whole,) = readings(specs, symbols, {}, whole=True)
    assert [place.axis for place in whole.places] == [None, None]
    assert whole.places[1].record == (2, None)
    named = readings(specs, symbols, {}, whole=("edges",))
    assert {reading.places[1] for reading in named} == {InputReading(None, (2, None))}
    assert all(reading.places[0].axis == 0 for reading in named)
    assert all(reading.is_batched for reading in readings(specs, {}, {}, whole=False))
