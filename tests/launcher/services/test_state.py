"""The folder with the state of services."""

import pwd

import pytest

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import state
from cluster_serving.launcher.services.process import locked
from cluster_serving.settings.addresses import Address

FLINK = Address("localhost", 8081)


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
