import numpy as np
import pytest

from cluster_serving.frontend.api.original.java_floats import java_floats
from cluster_serving.protocol.original.floats import java_float


def test_many_numbers_are_written_as_each_of_them():
    bits = np.random.default_rng(0).integers(0, 1 << 32, 20_000, np.uint32).view(np.float32)
    small = 10.0 ** np.random.default_rng(0).uniform(-9, 9, 20_000)
    borders = [0, -0.0, 1e-3, 9.99e-4, 1e7, 9_999_999, 1e-4, -1e-6, 1e-7, 1e8, 123_456_784, 1e-45, 3.4e38]
    special = [float("nan"), float("inf"), -float("inf")]
    numbers = np.concatenate([bits, small.astype("f4"), np.array(special, "f4")])
    assert java_floats(numbers).split(",") == [java_float(number) for number in numbers]
    assert java_floats(np.array(borders)).split(",") == [java_float(number) for number in borders]


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array([[1, 2], [3, -4]]), "1.0,2.0,3.0,-4.0"),
        (np.array([True, False]), "1.0,0.0"),
        (np.array([0.5, 1e-5], ">f8")[::-1], "1.0E-5,0.5"),
        (np.array([2.5], "f2"), "2.5"),
        (np.array([1e300, 1]), "Infinity,1.0"),
        (np.zeros((0, 3)), ""),
    ],
)
def test_any_numbers_become_float32(array, text):
    assert java_floats(array) == text
