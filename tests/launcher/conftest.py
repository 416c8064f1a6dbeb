"""A model for jobs that the tests of the launcher start."""

import pytest

from tests.support.predictor import save_doubling


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A model that doubles a vector of four numbers."""
    folder = tmp_path_factory.mktemp("model")
    save_doubling(folder, 4)
    return folder
