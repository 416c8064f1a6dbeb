"""Somebody who follows a page."""

import pytest

from tests.support.fixtures.pages import Follower


@pytest.fixture
def follower(cluster, tmp_path):
    made = Follower(cluster, tmp_path)
    yield made
    made.stop()
