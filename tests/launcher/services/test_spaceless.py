"""Paths with spaces, which Flink's scripts cannot take."""

import pytest

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import spaceless, state
from cluster_serving.settings.addresses import Address

FLINK = Address("localhost", 8081)


@pytest.fixture
def links(monkeypatch, tmp_path):
    monkeypatch.setattr(spaceless, "_LINKS", tmp_path)
    return tmp_path


@pytest.fixture
def home(monkeypatch, links):
    """A state folder whose path has a space."""
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(links / "a b"))
    return links / "a b"


def test_data_stay_in_a_folder_whose_path_has_spaces(home, monkeypatch, tmp_path):
    assert state.folder("redis", FLINK) == home / "redis-8081"
    flink = state.folder("flink", FLINK)
    path = spaceless.without_spaces(flink)
    assert " " not in str(path)
    path.mkdir()
    assert flink.is_dir() and home.stat().st_mode & 0o777 == 0o700
    # Found again, wherever files for a while belong.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "other"))
    assert spaceless.without_spaces(flink) == path


def test_a_path_without_spaces_stays_as_it_is(monkeypatch, tmp_path):
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "ab"))
    assert spaceless.without_spaces(state.folder("flink", FLINK)) == tmp_path / "ab" / "flink-8081"


def test_a_link_that_leads_elsewhere_is_not_followed(home, links):
    flink = state.folder("flink", FLINK)
    link = spaceless.without_spaces(flink).parent
    link.unlink()
    link.symlink_to(links)
    with pytest.raises(LaunchError, match="set CLUSTER_SERVING_HOME to a folder without spaces"):
        spaceless.without_spaces(flink)
