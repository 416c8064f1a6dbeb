"""The outputs of a record as they are sent."""

import numpy as np
import pytest
import torch

from cluster_serving.job.postprocessing.outputs import pack


@pytest.mark.parametrize(
    "value",
    [np.float32(0.1), np.float16(0.1), np.array(0.1, "f4"), torch.tensor(0.1), 0.1, np.float64(0.1)],
    ids=lambda value: type(value).__name__,
)
def test_documents_have_the_digits_of_their_numbers(value):
    arrays, documents = pack({"found": {"score": value, "box": [value]}})
    assert documents == ["found"]
    assert arrays["found"].item() == '{"score": 0.1, "box": [0.1]}'


def test_documents_keep_whole_numbers():
    arrays, _ = pack({"found": [np.int64(2**62 + 1), np.array([True]), np.array([[2]], "u1")]})
    assert arrays["found"].item() == "[4611686018427387905, [true], [[2]]]"
