"""The folder with the state of services."""

from cluster_serving.launcher.services import state


def test_a_state_folder_with_spaces_is_moved(monkeypatch, tmp_path):
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "a b"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert " " not in str(state.root())
    assert state.root().stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "ab"))
    assert state.root() == tmp_path / "ab"
