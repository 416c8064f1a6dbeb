import os
import time

import pytest

from cluster_serving.job.remote import cache as module
from cluster_serving.job.remote.cache import KEPT, RECENT_S, Cache
from cluster_serving.protocol.errors import ModelError


@pytest.fixture
def put(cache):
    """Puts a version into the cache that was used some seconds ago."""

    def put(address, content, age=0.0):
        store = Cache.open()
        with store.locked(address), store.begin(address) as partial:
            (partial / "fetched").mkdir()
            version = store.commit(partial / "fetched", address, content)
        os.utime(version, times=(time.time() - age,) * 2)

    return put


def test_the_versions_that_were_used_longest_ago_are_removed(put, versions):
    for number in range(2 * KEPT):
        put(f"address-{number % 3}", f"version-{number}", age=RECENT_S + 100 - number)
    put("address-0", "last")
    kept = {path.name for path in versions()}
    assert kept == {"last", *(f"version-{number}" for number in range(KEPT + 1, 2 * KEPT))}


def test_versions_that_may_be_loading_now_stay(put, versions):
    for number in range(2 * KEPT):
        put("address", f"version-{number}")
    assert len(versions()) == 2 * KEPT


def test_a_version_counts_as_used_when_it_is_found(put, versions):
    put("old", "version", age=10 * RECENT_S)
    assert Cache.open().find("old", "version")
    for number in range(KEPT + 1):
        put("address", f"version-{number}", age=RECENT_S + 10)
    assert "version" in {path.name for path in versions()}


def test_an_address_that_is_being_fetched_is_left_alone(put, versions):
    store = Cache.open()
    put("busy", "version", age=10 * RECENT_S)
    with store.locked("busy"):
        for number in range(KEPT + 1):
            put("address", f"version-{number}", age=RECENT_S + 10)
        assert store.folder / "busy" / "version" in versions()
    put("address", "next")
    assert store.folder / "busy" / "version" not in versions()


def test_what_a_crash_has_left_is_removed(put, cache, versions):
    put("address", "version")
    (cache / "address" / "removed-earlier").mkdir()
    (cache / "address" / "partial").mkdir()
    put("address", "next")
    assert {path.name for path in versions()} == {"version", "next"}


def test_files_of_other_folders_stay(put, cache, versions):
    (cache / "proofs").mkdir(mode=0o700, parents=True)
    (cache / "proofs" / "kept.json").touch()
    os.utime(cache / "proofs" / "kept.json", times=(0, 0))
    for number in range(KEPT + 1):
        put("address", f"version-{number}", age=RECENT_S + 10)
    assert [path.name for path in (cache / "proofs").iterdir()] == ["kept.json"]


def test_without_the_variable_the_cache_is_in_a_folder_of_this_user(tmp_path, monkeypatch):
    monkeypatch.delenv("CLUSTER_SERVING_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert Cache.open().folder == tmp_path / "xdg" / "cluster-serving"
    # A home that does not exist and cannot be made, as users of containers have.
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = Cache.open().folder
    assert folder == tmp_path / f"cluster-serving-cache-{os.getuid()}"
    assert folder.stat().st_mode & 0o077 == 0


def test_a_cache_that_others_can_write_is_refused(cache):
    cache.mkdir()
    cache.chmod(0o777)
    with pytest.raises(ModelError, match="others can write into it; set CLUSTER_SERVING_CACHE"):
        Cache.open()


def test_a_chosen_cache_that_cannot_be_written_is_named(monkeypatch):
    monkeypatch.setenv("CLUSTER_SERVING_CACHE", "/proc/cache")
    with pytest.raises(ModelError, match="/proc/cache cannot be written"):
        Cache.open()
