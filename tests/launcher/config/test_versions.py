"""Versions of a model in numbered subfolders."""

import re

import pytest

from cluster_serving.job.models.versions import version_folders
from cluster_serving.launcher.config.job_options import job_options
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.config.versions import resolve, resolved
from cluster_serving.protocol.errors import ModelError


@pytest.fixture
def model(tmp_path):
    """Return a function that makes files and, with a `/` at the end, folders in the model's folder."""

    def make(*names):
        for name in names:
            path = tmp_path / name
            path.mkdir(parents=True) if name.endswith("/") else path.touch()
        return str(tmp_path)

    return make


def test_the_highest_number_is_the_latest_version(model, tmp_path):
    path = model("2/", "10/", "0009/", ".11/", "12.tmp/", "13", "config.pbtxt", "labels.txt")
    assert sorted(version_folders(path)) == [2, 9, 10]
    assert resolve(path) == (str(tmp_path / "10"), "10")
    assert resolve(path, 9) == (str(tmp_path / "0009"), "9")
    (tmp_path / "12.tmp").rename(tmp_path / "12")
    assert resolve(path)[1] == "12"


def test_a_folder_with_a_model_and_an_address_have_no_version(model):
    path = model("saved_model.pb", "variables/")
    assert (version_folders(path), resolve(path)) == ({}, (path, ""))
    for wanted, address in ((1, path), (1, "s3://bucket/model")):
        with pytest.raises(ModelError, match=f"modelVersion is 1, .*{re.escape(address)}"):
            resolve(address, wanted)
    assert resolve("s3://bucket/model") == ("s3://bucket/model", "")


def test_a_version_that_is_not_there_is_refused_with_those_that_are(model):
    path = model("1/", "3/")
    with pytest.raises(ModelError, match="there is no version 2 of the model in .*; there are 1, 3. Set modelVersion"):
        resolve(path, 2)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["1/", "net.onnx"], r"both versions of a model \(1\) and files of a model \(net.onnx\); move"),
        (["1/", "01/"], "has version 1 twice, 01 and 1"),
    ],
)
def test_folders_that_can_be_read_in_two_ways_are_refused(model, names, message):
    with pytest.raises(ModelError, match=message):
        version_folders(model(*names))


def test_the_job_gets_the_folder_of_the_version(model, tmp_path):
    config = resolved(Config.model_validate({"modelPath": model("1/", "2/"), "modelVersion": "1"}))
    options = job_options(config, "start", generation=7)
    assert (options.model.path, options.redis.version, options.redis.numbered) == (str(tmp_path / "1"), "1", True)
    assert resolved(config) == config


def test_the_updates_of_a_model_without_versions_are_told_apart_by_their_count(model):
    config = resolved(Config.model_validate({"modelPath": model("net.onnx")}))
    redis = job_options(config, "start", generation=7, version=5).redis
    assert (redis.version, redis.numbered) == ("5", False)


def test_machines_that_alone_have_the_model_look_in_the_folder_of_the_version():
    assert resolve("/not/here", 4) == ("/not/here/4", "4")
    assert resolve("/not/here") == ("/not/here", "")
