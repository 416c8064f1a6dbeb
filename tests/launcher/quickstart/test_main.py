"""What the quick start tells its user to type."""

import sys
from pathlib import Path

from cluster_serving.launcher.quickstart.main import shown

OWN = Path(sys.executable).with_name("cluster-serving-shutdown")


def test_a_command_is_shown_by_its_name_where_the_shell_finds_it(monkeypatch):
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setenv("PATH", str(OWN.parent))
    assert shown(OWN.name) == OWN.name
    monkeypatch.setenv("PATH", "/usr/bin")
    assert shown(OWN.name) == str(OWN)


def test_a_command_of_an_environment_that_uv_has_made_is_shown_with_its_path(monkeypatch):
    monkeypatch.setenv("PATH", str(OWN.parent))
    monkeypatch.setenv("UV", "/usr/bin/uv")
    assert shown(OWN.name) == str(OWN)
