"""Models in S3: a server that speaks its protocol, in a process of its own."""

import os
import subprocess
import sys
import uuid
from dataclasses import replace

import pytest

from cluster_serving.job.programs.inspection import inspect
from cluster_serving.job.remote.fetch import fetch
from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs.lifecycle import checked
from cluster_serving.launcher.jobs.store import opened
from cluster_serving.launcher.rollout import model_change
from cluster_serving.launcher.rollout.model_watch import SETTLED_S
from cluster_serving.launcher.rollout.models_watch import ModelsWatch
from cluster_serving.protocol.errors import ModelError
from tests.support.fixtures.redis_server import free_port
from tests.support.fixtures.running_slot import RunningJob
from tests.support.fixtures.waiting import wait_until

FILES = {"digits.xml": b"<net/>", "digits.bin": bytes(range(256)) * 40_000, "labels/names.txt": b"0123456789"}


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    """The address of an S3 server, without the variables that the machine may have."""
    boto = {name: "" for name in os.environ if name.startswith("AWS_")}
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    log = (tmp_path_factory.mktemp("s3") / "log").open("w+")
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log, subprocess.Popen(command, env=os.environ | boto | keys, stdout=log, stderr=log) as server:
        wait_until(lambda: server.poll() is not None or "Running on" in (log.seek(0), log.read())[1])
        assert server.poll() is None, (log.seek(0), log.read())[1]
        with pytest.MonkeyPatch.context() as patch:
            for name in boto:
                patch.delenv(name)
            for name, value in (keys | {"AWS_ENDPOINT_URL": url}).items():
                patch.setenv(name, value)
            yield url
        server.terminate()


@pytest.fixture
def bucket(s3):
    """A bucket with a model in the folder `digits`, and another one that begins with the same letters."""
    from s3fs import S3FileSystem

    fs = S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    name = f"bucket-{uuid.uuid4().hex}"
    fs.mkdir(name)
    for file, content in FILES.items():
        fs.pipe(f"{name}/models/digits/{file}", content)
    fs.pipe(f"{name}/models/digits-2/other.onnx", b"other")
    # What consoles make for a folder.
    fs.touch(f"{name}/models/digits/")
    return fs, name


def content_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_folder(bucket, versions, scheme):
    _, name = bucket
    folder = fetch(f"{scheme}://{name}/models/digits/")
    assert content_of(folder) == FILES
    assert fetch(f"{scheme}://{name}/models/digits/") == folder
    assert versions() == [folder]


def test_a_changed_file_of_the_same_size_is_another_version(bucket, versions):
    fs, name = bucket
    before = fetch(f"s3://{name}/models/digits")
    fs.pipe(f"{name}/models/digits/digits.xml", b"<new/>")
    after = fetch(f"s3://{name}/models/digits")
    assert (before / "digits.xml").read_bytes() == b"<net/>"
    assert (after / "digits.xml").read_bytes() == b"<new/>"
    assert sorted([before, after]) == versions()


def test_an_archive(bucket, pack, tmp_path):
    fs, name = bucket
    sha256 = pack(tmp_path / "digits.tgz", FILES)
    fs.put(str(tmp_path / "digits.tgz"), f"{name}/digits.tgz")
    assert content_of(fetch(f"s3://{name}/digits.tgz#sha256={sha256}")) == FILES
    assert inspect(f"s3://{name}/digits.tgz") == {
        "engine": "",
        "requirement": "",
        "size": (tmp_path / "digits.tgz").stat().st_size,
        "text": True,
    }


def test_the_engine_is_known_from_the_names(bucket):
    _, name = bucket
    assert inspect(f"s3://{name}/models/digits") == {
        "engine": "OpenVINO",
        "requirement": "cluster-serving[openvino]",
        "size": sum(map(len, FILES.values())),
        "text": False,
    }
    with pytest.raises(ModelError, match=f"s3://{name}/models holds no model. Found: digits-2/, digits/"):
        inspect(f"s3://{name}/models")


def test_several_models_are_found_by_their_names_and_fetched_by_the_slots(
    bucket, versions, redis_server, tmp_path, ask
):
    fs, name = bucket

    def put(model, factor):
        code = "class Handler:\n    inputs = outputs = {'x': 'float32'}\n    def predict(self, batch):\n"
        fs.pipe(f"{name}/shop/{model}/handler.py", f"{code}        return {{'x': batch['x'] * {factor}}}\n".encode())

    for model, factor in {"double": 2, "triple": 3, "ten/1": 10}.items():
        put(model, factor)
    fs.pipe(f"{name}/shop/double/config.yaml", b"maxBatchSize: 4")
    fs.pipe(f"{name}/shop/coded/config.yaml", b"allowPickle: true")
    for model in ("coded", "broken"):
        fs.pipe(f"{name}/shop/{model}/model.onnx", b"none")
    fs.pipe(f"{name}/shop/notes/readme.txt", b"none")
    settings = {"jobName": "shop", "modelPath": f"s3://{name}/shop", "handler": "handler:Handler", "startTimeout": 60}
    job = RunningJob(redis_server, tmp_path, **settings)

    job.start()
    try:
        fetched = [path.name for path in versions()]
        with job.place() as place:
            assert place.models.names == ("broken", "coded", "double", "ten", "triple")
            assert place.models.ignored == ("notes (it holds no model)",)
            assert f"s3://{name}/shop/broken/model.onnx is not" in place.store.models()["broken"].error
            reason = f"s3://{name}/shop/coded/config.yaml, line 1: allowPickle belongs to the job"
            assert reason in place.store.models()["coded"].error
        assert [ask(model) for model in ("double", "triple", "ten")] == [2, 3, 10]
        # Other content serves after the change alone, and nothing else is fetched for it.
        put("triple", 33)
        put("ten/2", 20)
        assert [ask(model) for model in ("triple", "ten")] == [3, 10]
        with opened(config_file.read(tmp_path / "config.yaml")) as store:
            watch, config = ModelsWatch(), config_file.read(tmp_path / "config.yaml")
            due = [watch.due(config, store, store.models(), now) for now in (0.0, 1.0, SETTLED_S)]
            assert due == [[], [], ["ten", "triple"]]
        with job.place() as place:
            assert model_change.load_in(place, "triple")[0].version == "2"
            report, now = model_change.load_in(place, "ten")
            assert report.version == "2"
        assert [ask(model) for model in ("double", "triple", "ten")] == [2, 33, 20]
        assert len(versions()) == len(fetched) + 2
        # A version stays where it is; other files than these are nowhere.
        with job.place(place.options) as place:
            place = replace(place, options=now)
            assert model_change.rollback_in(place, "ten")[0].version == "1"
            with pytest.raises(LaunchError, match="this machine knows no earlier files of the model triple"):
                model_change.rollback_in(place, "triple")
        assert ask("ten") == 10
    finally:
        job.stop()


def test_a_change_needs_the_store(s3, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    (tmp_path / "config.yaml").write_text("modelPath: s3://bucket/away\n")
    with pytest.raises(LaunchError, match="the store of s3://bucket/away does not answer"):
        model_change.unload(config_file.read(tmp_path / "config.yaml"), "a")


def test_the_address_of_one_model_is_not_watched(bucket, tmp_path):
    _, name = bucket
    (tmp_path / "config.yaml").write_text(f"modelPath: s3://{name}/models/digits\nwatchModel: true\n")
    with pytest.raises(LaunchError, match=f"watchModel: true, and s3://{name}/models/digits is the address of one"):
        checked(config_file.read(tmp_path / "config.yaml"))


@pytest.mark.parametrize("path", ["models/none", "models/digits/digits.xml", "models/none.zip", "models/dig"])
def test_a_model_that_does_not_exist(bucket, path):
    _, name = bucket
    with pytest.raises(ModelError, match="there is no"):
        fetch(f"s3://{name}/{path}", timeout=1e9)


def test_a_file_that_lies_outside_of_the_folder(bucket, tmp_path):
    fs, name = bucket
    outside = tmp_path / "outside"
    for folder, key in (("digits", f"digits/{outside}"), ("digits-2", "digits-2/../outside")):
        fs.pipe(f"{name}/models/{key}", b"x")
        with pytest.raises(ModelError, match=f"models/{folder} holds '.*outside', which lies outside of the folder"):
            fetch(f"s3://{name}/models/{folder}")
    with pytest.raises(ModelError, match="which lies outside of the folder"):
        inspect(f"s3://{name}/models", shown_in=str(tmp_path))
    assert not outside.exists()


def test_a_bucket_that_does_not_exist(s3):
    with pytest.raises(ModelError, match="there is no model at s3://no-such-bucket/model"):
        fetch("s3://no-such-bucket/model", timeout=1e9)


def test_without_credentials_the_variables_are_named(bucket, monkeypatch):
    _, name = bucket
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(ModelError, match="credentials .* AWS_ACCESS_KEY_ID"):
        fetch(f"s3://{name}/models/digits", timeout=1e9)


def test_a_store_that_is_away(s3, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ModelError, match="the store of s3://bucket/model does not answer"):
        fetch("s3://bucket/model", timeout=0.1)
