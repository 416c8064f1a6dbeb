"""A model for jobs that the tests of the launcher start."""

import pytest

from cluster_serving.launcher.config import file
from tests.support.fixtures.messages import heard
from tests.support.fixtures.predictor import save_doubling


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A model that doubles a vector of four numbers."""
    folder = tmp_path_factory.mktemp("model")
    save_doubling(folder, 4)
    return folder


@pytest.fixture
def read(tmp_path):
    """Reads a `config.yaml` of a text, in the folder of this test."""

    def read(text, warn=lambda _: None):
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return file.read(path, warn)

    return read


@pytest.fixture
def said():
    """The messages of the launcher in this test."""
    with heard() as said:
        yield said
