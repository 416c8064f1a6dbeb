"""The folder with the state of services."""

import pwd

import pytest

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import state
from cluster_serving.launcher.services.process import locked
from cluster_serving.settings.addresses import Address

FLINK = Address("localhost", 8081)


@pytest.fixture
def links(monkeypatch, tmp_path):
    monkeypatch.setattr(state, "_LINKS", tmp_path)
    return tmp_path


@pytest.fixture
def home(monkeypatch, links):
    """A state folder whose path has a space."""
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(links / "a b"))
    return links / "a b"


def test_data_stay_in_a_folder_whose_path_has_spaces(home, monkeypatch, tmp_path):
    assert state.folder("redis", FLINK) == home / "redis-8081"
    flink = state.folder("flink", FLINK)
    path = state.without_spaces(flink)
    assert " " not in str(path)
    path.mkdir()
    assert flink.is_dir() and home.stat().st_mode & 0o777 == 0o700
    # Found again, wherever files for a while belong.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "other"))
    assert state.without_spaces(flink) == path


def test_a_path_without_spaces_stays_as_it_is(monkeypatch, tmp_path):
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "ab"))
    assert state.without_spaces(state.folder("flink", FLINK)) == tmp_path / "ab" / "flink-8081"


def test_a_link_that_leads_elsewhere_is_not_followed(home, links):
    flink = state.folder("flink", FLINK)
    link = state.without_spaces(flink).parent
    link.unlink()
    link.symlink_to(links)
    with pytest.raises(LaunchError, match="set CLUSTER_SERVING_HOME to a folder without spaces"):
        state.without_spaces(flink)


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch):
    for variable in ("CLUSTER_SERVING_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)

    def unknown(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(LaunchError, match="no home folder.* set CLUSTER_SERVING_HOME to a folder") as caught:
        state.root()
    assert "\n" not in str(caught.value)


def test_a_state_folder_that_cannot_be_made_is_told_with_the_variable(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "file" / "state"))
    with (
        pytest.raises(LaunchError, match="Not a directory; set CLUSTER_SERVING_HOME"),
        locked(state.folder("redis", FLINK)),
    ):
        pass
