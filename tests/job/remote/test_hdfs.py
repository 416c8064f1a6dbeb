"""Models in HDFS: the addresses of NameNodes, and a real HDFS where HADOOP_CONF_DIR names one."""

import os
import uuid

import pytest

from cluster_serving.job.remote.fetch import fetch
from cluster_serving.job.remote.hadoop import namenodes
from cluster_serving.protocol.errors import ModelError
from tests.support.fixtures.redis_server import free_port

FILES = {"digits.xml": b"<net/>", "digits.bin": bytes(range(256)) * 40_000, "labels/names.txt": b"0123456789"}


@pytest.fixture
def configure(tmp_path, monkeypatch):
    """Writes a Hadoop configuration."""

    def configure(**files):
        for name, options in files.items():
            rows = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in options.items())
            (tmp_path / f"{name}-site.xml").write_text(f"<configuration>{rows}</configuration>")
        monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))

    return configure


def test_without_a_configuration_the_port_is_that_of_hadoop(monkeypatch):
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    assert namenodes("master:8020") == namenodes("master") == ["master:9870"]
    with pytest.raises(ModelError, match="needs a HADOOP_CONF_DIR"):
        fetch("hdfs:///models/digits")


def test_the_configuration_names_host_and_port(configure):
    configure(core={"fs.defaultFS": "hdfs://master:8020/"}, hdfs={"dfs.namenode.http-address": "0.0.0.0:50070"})
    assert namenodes("") == namenodes("master:8020") == namenodes("master") == ["master:50070"]
    assert namenodes("other:8020") == ["other:9870"]
    configure(hdfs={"host": "web", "dfs.namenode.http-address": "${host}:50070"})
    assert namenodes("") == ["web:50070"]


def test_an_hdfs_with_two_namenodes(configure):
    addresses = {f"dfs.namenode.http-address.ns.{name}": f"{name}:9870" for name in ("nn1", "nn2")}
    configure(core={"fs.defaultFS": "hdfs://ns"}, hdfs={"dfs.ha.namenodes.ns": "nn1, nn2", **addresses})
    assert namenodes("") == namenodes("ns") == ["nn1:9870", "nn2:9870"]


def test_a_namenode_that_does_not_answer():
    with pytest.raises(ModelError, match="the store of webhdfs://.* does not answer"):
        fetch(f"webhdfs://127.0.0.1:{free_port()}/models/digits", timeout=0.1)


@pytest.fixture
def hdfs():
    """A folder with a model in the HDFS of the configuration: the HDFS through fsspec, and the path."""
    try:
        host, _, port = namenodes("")[0].partition(":")
    except ValueError:
        pytest.skip("HADOOP_CONF_DIR does not name the configuration of an HDFS")
    from fsspec.implementations.webhdfs import WebHDFS

    fs = WebHDFS(host=host, port=int(port), user=os.environ.get("HADOOP_USER_NAME", "root"), skip_instance_cache=True)
    path = f"/tmp/cluster-serving-{uuid.uuid4().hex}"  # noqa: S108 - of HDFS
    for name, content in FILES.items():
        fs.pipe_file(f"{path}/digits/{name}", content)
    yield fs, path
    fs.rm(path, recursive=True)


def content_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_of_a_real_hdfs(hdfs, versions):
    fs, path = hdfs
    folder = fetch(f"hdfs://{path}/digits")
    assert content_of(folder) == FILES
    host, _, port = namenodes("")[0].partition(":")
    assert content_of(fetch(f"webhdfs://{host}:{port}{path}/digits")) == FILES
    assert fetch(f"hdfs://{path}/digits") == folder
    fs.pipe_file(f"{path}/digits/digits.xml", b"<new/>")
    assert (fetch(f"hdfs://{path}/digits") / "digits.xml").read_bytes() == b"<new/>"


def test_an_archive_of_a_real_hdfs(hdfs, pack, tmp_path):
    fs, path = hdfs
    pack(tmp_path / "digits.tgz", FILES)
    fs.pipe_file(f"{path}/digits.tgz", (tmp_path / "digits.tgz").read_bytes())
    assert content_of(fetch(f"hdfs://{path}/digits.tgz")) == FILES
    for missing in ("none", "none.zip"):
        with pytest.raises(ModelError, match="there is no model at"):
            fetch(f"hdfs://{path}/{missing}", timeout=1e9)


def test_a_folder_of_which_a_part_cannot_be_listed_is_not_taken_for_the_whole(hdfs, monkeypatch, versions):
    fs, path = hdfs
    fs.chmod(f"{path}/digits/labels", "700")
    monkeypatch.setenv("HADOOP_USER_NAME", "nobody")
    with pytest.raises(ModelError, match="credentials .* HADOOP_USER_NAME"):
        fetch(f"hdfs://{path}/digits", timeout=1e9)
    assert versions() == []
