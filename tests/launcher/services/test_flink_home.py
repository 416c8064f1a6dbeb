"""The Flink installation of a cluster."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

from cluster_serving.launcher.services import flink_cluster
from cluster_serving.launcher.services.flink_home import EMBEDDED_PYTHON, FlinkHome, python_path

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = FlinkHome(tmp_path_factory.mktemp("flink"))
    home.prepare({"rest.port": 12345})
    return home


def test_the_library_of_python_is_loaded_once_per_process(home):
    names = {path.name for path in (home.path / "lib").iterdir()}
    assert any(name.startswith("flink-python-") for name in names)
    assert any(name.startswith("flink-dist-") for name in names)
    assert (home.path / "opt").is_dir() and not (home.path / "opt").is_symlink()
    assert list((home.path / "opt").glob("flink-python-*.jar"))
    assert list((home.path / "plugins").glob("metrics-prometheus/*.jar"))


def test_the_options_of_a_cluster_come_on_top_of_the_packaged_ones(home):
    options = yaml.safe_load((home.path / "conf" / "config.yaml").read_text())
    assert options["rest.port"] == 12345
    assert options["rest.bind-address"] == "localhost"
    assert options["python.executable"] == home.python
    assert "jdk.compiler" not in options["env.java.opts.all"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_file_and_console_have_the_same_form(tmp_path, form):
    FlinkHome(tmp_path).prepare({}, form)
    logging = (tmp_path / "conf" / "log4j-console.properties").read_text("utf8")
    assert re.findall("layout.pattern = (.*)", logging) == [f"${{{form}}}"] * 2


def test_preparing_again_does_no_harm(home):
    before = sorted(path.relative_to(home.path) for path in home.path.rglob("*"))
    home.prepare({"rest.port": 12345})
    assert sorted(path.relative_to(home.path) for path in home.path.rglob("*")) == before


def test_a_new_cluster_finds_no_logs_of_the_one_before(tmp_path):
    home = FlinkHome(tmp_path)
    home.put_logs_aside()
    for name in ("first", "second"):
        home.logs.mkdir()
        (home.logs / name).touch()
        home.put_logs_aside()
        assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == [
            "log.earlier",
            f"log.earlier/{name}",
        ]


def test_the_environment_leads_nowhere_outside_the_home(home, monkeypatch):
    monkeypatch.setenv("FLINK_CONF_DIR", "/elsewhere")
    environment = home.environment()
    flink = {key: value for key, value in environment.items() if key.startswith("FLINK_")}
    assert flink["FLINK_CONF_DIR"] == str(home.path / "conf")
    assert all(value.startswith(str(home.path)) for value in flink.values())
    assert Path(environment["JAVA_HOME"], "bin", "java").exists()


def test_no_path_that_flink_gets_has_a_space(home):
    assert Path(home.python).resolve() == Path(sys.executable).resolve()
    prefix = [entry for entry in python_path() if Path(entry).is_relative_to(sys.prefix)]
    assert prefix
    assert not any(sys.prefix in entry for entry in home.environment()["PYTHONPATH"].split(os.pathsep))


def test_the_python_of_a_task_manager_imports_our_module_first(home):
    first, *others = home.environment()["PYTHONPATH"].split(os.pathsep)
    assert Path(first, "sitecustomize.py").exists()
    assert first not in others


def test_the_python_path_has_packages_and_neither_python_nor_the_current_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), "", "/does/not/exist", str(EMBEDDED_PYTHON), *sys.path])
    entries = python_path()
    assert sysconfig.get_path("purelib") in entries
    assert not {str(tmp_path), "", "/does/not/exist", str(EMBEDDED_PYTHON), sysconfig.get_path("stdlib")} & set(entries)


SCRIPT = """
import os, sys
# As the .pth file of an editable installation does; Flink's interpreter reads no such file.
sys.path.insert(1, sys.argv[1])
from cluster_serving.launcher.services.flink_home import python_path
print(os.pathsep.join(python_path()))
"""


@pytest.mark.parametrize("folder", [ROOT, ROOT.parent], ids=["in the clone", "elsewhere"])
def test_flink_gets_the_clone_of_an_editable_installation(tmp_path, folder):
    script = tmp_path / "bin" / "cluster-serving-start"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    ran = subprocess.run([sys.executable, script, ROOT], cwd=folder, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    entries = ran.stdout.strip().split(os.pathsep)
    assert str(ROOT) in entries
    assert not {str(script.parent), str(ROOT.parent)} & set(entries)


def test_an_edited_file_makes_a_cluster_outdated(tmp_path, monkeypatch):
    for package in ("protocol", "connectors", "job"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "module.py").touch()
        (tmp_path / "cluster_serving").mkdir(exist_ok=True)
        (tmp_path / "cluster_serving" / package).symlink_to(f"../{package}")
    monkeypatch.setattr(flink_cluster, "PACKAGES", tmp_path)
    before = flink_cluster._code()
    assert flink_cluster._code() == before
    (tmp_path / "job" / "module.py").write_text("edited = True")
    assert flink_cluster._code() != before
