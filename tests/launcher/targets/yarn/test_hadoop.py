"""The Hadoop that the environment names."""

import pytest

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.targets.yarn.hadoop import Hadoop


@pytest.fixture
def configured(tmp_path, monkeypatch):
    """Writes yarn-site.xml, and names its folder."""

    def write(**values):
        rows = "".join(
            f"<property><name>{name.replace('_', '.')}</name><value>{value}</value></property>"
            for name, value in values.items()
        )
        (tmp_path / "yarn-site.xml").write_text(f"<configuration>{rows}</configuration>")
        monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
        return Hadoop()

    return write


def test_the_resource_manager_is_found_by_its_host_alone(configured):
    hadoop = configured(yarn_resourcemanager_hostname="manager")
    assert hadoop.resource_managers() == ["http://manager:8088"]


def test_all_resource_managers_are_found(configured):
    hadoop = configured(
        **{
            "yarn.resourcemanager.ha.rm-ids": "rm1, rm2",
            "yarn.resourcemanager.webapp.address.rm1": "one:8088",
            "yarn.resourcemanager.webapp.address.rm2": "two:8088",
        }
    )
    assert hadoop.resource_managers() == ["http://one:8088", "http://two:8088"]


def test_the_resource_manager_may_have_tls(configured):
    hadoop = configured(yarn_http_policy="HTTPS_ONLY", yarn_resourcemanager_hostname="manager")
    assert hadoop.resource_managers() == ["https://manager:8090"]


def test_a_value_may_be_made_of_others(configured):
    hadoop = configured(a_host="manager", a_port="${another.port}", another_port="1", a_url="${a.host}:${a.port}")
    assert hadoop.get("a.url") == "manager:1"


def test_the_class_path_begins_with_the_configuration(configured, tmp_path, monkeypatch):
    hadoop = configured()
    monkeypatch.setenv("HADOOP_CLASSPATH", "/hadoop/*::/more.jar\n")
    assert hadoop.classpath == [str(tmp_path), "/hadoop/*", "/more.jar"]


@pytest.mark.parametrize("name", ["HADOOP_CONF_DIR", "HADOOP_CLASSPATH"])
def test_a_variable_that_is_not_set_is_named_with_what_to_export(configured, monkeypatch, name):
    hadoop = configured()
    monkeypatch.setenv("HADOOP_CLASSPATH", "/hadoop/*")
    monkeypatch.delenv(name)
    with pytest.raises(LaunchError, match=f"{name} is not set; .*export"):
        _ = hadoop.classpath


def test_a_folder_without_a_configuration_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(LaunchError, match=r"has no yarn-site\.xml"):
        Hadoop().resource_managers()


def test_a_configuration_that_is_no_xml_is_named(configured, tmp_path):
    hadoop = configured()
    (tmp_path / "core-site.xml").write_text("<configuration>")
    with pytest.raises(LaunchError, match=r"core-site\.xml cannot be read"):
        hadoop.get("fs.defaultFS")
