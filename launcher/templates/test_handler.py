"""Tests of the example in handler.py, without Flink and Redis: replace them together with it.

Run them with: python -m pytest model
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cluster_serving.job.trial import InvalidInput, Trial


@pytest.fixture(scope="module")
def handler() -> Iterator[Trial]:
    """The handler in this folder, loaded as a job loads it."""
    with Trial(Path(__file__).parent) as loaded:
        yield loaded


def test_a_record_is_computed(handler: Trial) -> None:
    outputs = handler(x=np.array([1, 2, 3]))
    assert outputs["y"].tolist() == [4, 6, 8]
    assert outputs["about"] == "the sum is 18"


def test_negative_numbers_are_refused(handler: Trial) -> None:
    with pytest.raises(InvalidInput, match="negative"):
        handler(x=np.array([1, -2, 3]))
