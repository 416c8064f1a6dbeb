import os
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

from cluster_serving.launcher.jobs.flink_rest import cause
from cluster_serving.launcher.services import state
from cluster_serving.launcher.services.flink_home import FlinkHome, python_path


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


def test_preparing_again_does_no_harm(home):
    before = sorted(path.relative_to(home.path) for path in home.path.rglob("*"))
    home.prepare({"rest.port": 12345})
    assert sorted(path.relative_to(home.path) for path in home.path.rglob("*")) == before


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


def test_the_python_path_has_packages_and_neither_python_nor_the_current_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), "", "/does/not/exist", *sys.path])
    entries = python_path()
    assert sysconfig.get_path("purelib") in entries
    assert not {str(tmp_path), "", "/does/not/exist", sysconfig.get_path("stdlib")} & set(entries)


def test_a_state_folder_with_spaces_is_moved(monkeypatch, tmp_path):
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "a b"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert " " not in str(state.root())
    assert state.root().stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "ab"))
    assert state.root() == tmp_path / "ab"


PYTHON = """\
java.lang.RuntimeException: Python process exited with code 1
Traceback (most recent call last):
  File "/x/main.py", line 3, in main
    job()
  File "/x/job.py", line 8, in job
    raise ModelError("no such input: y")
cluster_serving.protocol.errors.ModelError: no such input: y

org.apache.flink.client.program.ProgramAbortException
	at org.apache.flink.client.python.PythonDriver.main(PythonDriver.java:140)
"""
JAVA = """\
org.apache.flink.runtime.JobException: Recovery is suppressed
	at org.apache.flink.A.b(A.java:1)
Caused by: java.lang.IllegalStateException: broken
	at org.apache.flink.A.c(A.java:2)
	... 3 more
"""


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (PYTHON, "cluster_serving.protocol.errors.ModelError: no such input: y"),
        (JAVA, "java.lang.IllegalStateException: broken"),
        ("one line", "one line"),
        ("", "unknown"),
    ],
)
def test_the_cause_is_one_line_of_a_trace(trace, expected):
    assert cause(trace) == expected
