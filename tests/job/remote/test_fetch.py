"""Models fetched from real servers and folders: whole and as announced, or not at all."""

import hashlib
import logging
import shutil
import signal
import subprocess
import sys
import time
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import pytest

from cluster_serving.job.models.detect import check
from cluster_serving.job.options import ModelOptions
from cluster_serving.job.remote.cache import VARIABLE
from cluster_serving.job.remote.fetch import fetch
from cluster_serving.protocol.errors import EngineMissing, ModelError
from tests.support.fixtures.waiting import wait_until

FILES = {"model.onnx": bytes(range(256)) * 4000, "variables/part": b"weights"}
FETCH = "import sys; from cluster_serving.job.remote.fetch import fetch; print(fetch(sys.argv[1]))"


@pytest.fixture
def model(site, pack):
    """An archive on the web server; its SHA-256."""
    return pack(site / "model.zip", FILES)


def content_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_archive_of_a_web_server_is_fetched_once(server, model, versions):
    folder = fetch(f"{server.url}/model.zip")
    assert content_of(folder) == FILES
    assert fetch(f"{server.url}/model.zip") == folder
    assert server.fetched == ["/model.zip"]
    assert versions() == [folder]


def test_several_processes_fetch_once(server, model, versions):
    command = [sys.executable, "-c", FETCH, f"{server.url}/model.zip"]
    with ThreadPoolExecutor() as pool:
        ran = list(pool.map(lambda _: subprocess.run(command, capture_output=True, text=True), range(4)))
    assert {process.stdout.strip() for process in ran} == {str(path) for path in versions()}
    assert server.fetched == ["/model.zip"]


def test_threads_of_one_process_fetch_once(server, model, versions):
    with ThreadPoolExecutor() as pool:
        folders = set(pool.map(fetch, [f"{server.url}/model.zip"] * 4))
    assert list(folders) == versions()
    assert server.fetched == ["/model.zip"]


def test_a_changed_model_lies_beside_the_earlier_one(server, site, model, pack, versions):
    before = fetch(f"{server.url}/model.zip")
    pack(site / "model.zip", {"model.onnx": b"other"})
    after = fetch(f"{server.url}/model.zip")
    assert (content_of(before), content_of(after)) == (FILES, {"model.onnx": b"other"})
    assert sorted([before, after]) == versions()


def test_the_checksum_of_an_archive(server, site, model, pack):
    folder = fetch(f"{server.url}/model.zip#sha256={model}")
    assert content_of(folder) == FILES
    # The content is known from the address, so a store that is gone does not matter.
    server.stop()
    assert fetch(f"{server.url}/model.zip#sha256={model}") == folder


def test_a_wrong_checksum_is_refused_and_nothing_stays(server, model, versions):
    with pytest.raises(ModelError, match=f"its SHA-256 is {model}, not {'0' * 64}"):
        fetch(f"{server.url}/model.zip#sha256={'0' * 64}")
    assert versions() == []


def test_the_checksum_of_a_server(server, site, model, versions):
    server.md5 = b64encode(hashlib.md5((site / "model.zip").read_bytes(), usedforsecurity=False).digest()).decode()
    assert content_of(fetch(f"{server.url}/model.zip")) == FILES
    server.md5 = b64encode(bytes(16)).decode()
    with pytest.raises(ModelError, match=f"came with the MD5 .* instead of {server.md5}"):
        fetch(f"{server.url}/model.zip", timeout=0)
    assert len(versions()) == 1


def test_a_model_that_ends_in_the_middle_is_fetched_again(server, model, caplog):
    server.cut = 2
    assert content_of(fetch(f"{server.url}/model.zip")) == FILES
    assert len(server.fetched) == 3
    assert "trying again" in caplog.text


def test_a_model_that_always_ends_in_the_middle_is_never_used(server, model, versions):
    server.cut = 1000
    with pytest.raises(ModelError, match=r"tried \d+ times"):
        fetch(f"{server.url}/model.zip", timeout=1)
    assert versions() == []


def test_without_a_size_a_part_could_be_taken_for_the_whole(server, model):
    server.sized = False
    with pytest.raises(ModelError, match="does not give the size .* add #sha256="):
        fetch(f"{server.url}/model.zip")
    assert content_of(fetch(f"{server.url}/model.zip#sha256={model}")) == FILES


def test_a_process_that_is_killed_leaves_nothing_that_counts(server, model, cache, versions):
    server.stalled.set()
    with subprocess.Popen([sys.executable, "-c", FETCH, f"{server.url}/model.zip"]) as process:
        wait_until(lambda: server.fetched and list(cache.glob("*/partial/fetched/model.zip")))
        process.send_signal(signal.SIGKILL)
    assert [path.name for path in versions()] == ["partial"]
    server.stalled.clear()
    folder = fetch(f"{server.url}/model.zip")
    assert content_of(folder) == FILES
    assert versions() == [folder]


def test_a_store_that_is_away_for_a_while(server, model):
    server.failing = 4
    assert content_of(fetch(f"{server.url}/model.zip")) == FILES


def test_a_store_that_does_not_answer_is_named_with_the_remedy(server, model):
    server.stop()
    before = time.monotonic()
    with pytest.raises(ModelError) as error:
        fetch(f"{server.url}/model.zip", timeout=1)
    assert time.monotonic() - before >= 0.5
    for part in (f"the store of {server.url}/model.zip does not answer", "check modelPath", "HTTPS_PROXY"):
        assert part in str(error.value)


def test_a_model_that_does_not_exist_is_no_reason_to_wait(server):
    with pytest.raises(ModelError, match="there is no model at .*/model.zip .*set modelPath"):
        fetch(f"{server.url}/model.zip", timeout=1e9)


def test_a_password_opens_the_store_and_is_never_told(server, model, caplog):
    caplog.set_level(logging.INFO)
    server.login = "me:secret"
    host = server.url.removeprefix("http://")
    assert content_of(fetch(f"http://me:secret@{host}/model.zip?token=hidden")) == FILES
    with pytest.raises(ModelError, match="refuses .*NETRC") as error:
        fetch(f"http://me:wrong-secret@{host}/model.zip?token=hidden", timeout=1e9)
    with pytest.raises(ModelError) as missing:
        fetch(f"http://me:secret@{host}/nothing.zip?token=hidden", timeout=1e9)
    server.stop()
    with pytest.raises(ModelError) as away:
        fetch(f"http://me:secret@{host}/model.zip?token=hidden2", timeout=1)
    for told in (caplog.text, *map(str, (error.value, missing.value, away.value))):
        assert told
        assert "secret" not in told
        assert "hidden" not in told
    # A traceback in a log has the causes, too.
    assert error.value.__cause__ is error.value.__context__ is None


def test_credentials_in_a_netrc_file(server, model, tmp_path, monkeypatch):
    server.login = "me:secret"
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    assert content_of(fetch(f"{server.url}/model.zip")) == FILES


def test_an_archive_of_this_machine(site, pack):
    pack(site / "model.tgz", {f"digits/{name}": content for name, content in FILES.items()})
    folder = fetch(f"file://{site}/model.tgz")
    assert folder.name == "digits"
    assert content_of(folder) == FILES


def test_a_folder_with_subfolders(site):
    for name, content in FILES.items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_bytes(content)
    folder = fetch(f"file://{site}")
    assert content_of(folder) == FILES
    shutil.rmtree(site / "variables")
    with pytest.raises(ModelError, match="there is no model at .*variables"):
        fetch(f"file://{site}/variables", timeout=1e9)
    assert content_of(fetch(f"file://{site}")) == {"model.onnx": FILES["model.onnx"]}


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    registry = import_module("fsspec.registry")
    for module, address, extra in (
        ("s3fs", "s3://bucket/model", "s3"),
        ("gcsfs", "gs://bucket/model", "gcs"),
        ("aiohttp", "https://host/model.zip", "remote"),
        ("fsspec", "file:///model.zip", "remote"),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            # The class stays known to fsspec once another test has used it.
            patch.delitem(registry._registry, address.partition(":")[0], raising=False)
            patch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
            with pytest.raises(EngineMissing, match=f"pip install 'cluster-serving\\[{extra}\\]'"):
                fetch(address)


def test_an_address_of_no_store():
    with pytest.raises(ModelError, match="the scheme is not one of") as error:
        fetch("ftp://me:secret@host/model.zip")
    assert "secret" not in str(error.value)


def test_a_model_without_space_names_the_cache(server, model, monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
    with pytest.raises(ModelError, match=f"free in .*{VARIABLE}"):
        fetch(f"{server.url}/model.zip")


@pytest.mark.parametrize("ending", [".zip", ".tar.gz"])
def test_a_folder_of_an_archive(server, site, pack, versions, ending):
    files = {"models/iris/model.json": b"{}", "models/net/1/model.onnx": b"", "models/b/model.onnx": b""}
    pack(site / f"models{ending}", files)
    address = f"{server.url}/models{ending}"
    assert content_of(fetch(f"{address}!/iris")) == {"model.json": b"{}"}
    assert content_of(fetch(f"{address}!/net/1")) == {"model.onnx": b""}
    with pytest.raises(ModelError, match=rf"the archive of {address}!/other has no folder other; name one"):
        fetch(f"{address}!/other")
    # Where the command could not look into it, the slots name one.
    with pytest.raises(
        ModelError, match=rf"{address} is an archive of several models \(b/, iris/\), .* such as {address}!/b,"
    ):
        check(ModelOptions(address))
    # The one that is left is where it was.
    pack(site / f"models{ending}", {"iris/model.json": b"[]"})
    assert content_of(fetch(f"{address}!/iris")) == content_of(fetch(address)) == {"model.json": b"[]"}
    assert server.fetched == [f"/models{ending}"] * 2
