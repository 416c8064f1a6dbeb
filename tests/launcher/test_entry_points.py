"""The commands as `pyproject.toml` declares them, also where nothing but the light client is installed."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.fixtures.commands import BIN
from tests.support.fixtures.predictor import save_doubling

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
SCRIPTS = dict(re.findall(r'^(cluster-serving[a-z-]*) = "([\w.]+:\w+)"$', PYPROJECT.read_text("utf8"), re.MULTILINE))
RUN = """
import sys
script, module, function, *sys.argv[1:] = sys.argv[1:]
sys.argv[0] = script
for package in ("typer", "rich", "httpx", "pydantic", "yaml", "starlette", "grpc", "pyflink", "cv2"):
    sys.modules[package] = None
module = __import__(module, fromlist=[function])
PYTHON
getattr(module, function)()
"""


def run_in_light_client(script, *arguments, python=""):
    """Run a command of an installation without extras, as far as imports tell; `python` sets the version."""
    module, _, function = SCRIPTS[script].partition(":")
    program = RUN.replace("PYTHON", python)
    return subprocess.run(
        [sys.executable, "-c", program, f"/venv/bin/{script}", module, function, *arguments],
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    "words",
    [
        *([script] for script in SCRIPTS),
        ["cluster-serving", "start"],
        ["cluster-serving", "http"],
        ["cluster-serving", "bench"],
        ["cluster-serving", "quickstart"],
        ["cluster-serving-cli", "try"],
        ["cluster-serving-cli", "dead"],
        ["cluster-serving-cli", "dead", "list"],
    ],
    ids=" ".join,
)
def test_each_command_has_help_in_a_word_and_in_a_letter(words):
    shown = [
        subprocess.run([BIN / words[0], *words[1:], option], capture_output=True, text=True, check=True).stdout
        for option in ("--help", "-h")
    ]
    assert shown[0] == shown[1] != ""


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_command_tells_its_version_and_what_to_install(script):
    assert run_in_light_client(script, "--version").stdout == f"{script} {version('cluster-serving')}\n"
    ran = run_in_light_client(script, "--help")
    assert ran.returncode == 1
    extras = {"cluster-serving-http": "http", "cluster-serving-bench": "bench"}.get(script, "server,embedded,openvino")
    expected = (
        rf"error: {script} needs [\w.]+, which is not installed: run pip install 'cluster-serving\[{extras}\]'.*\n"
    )
    assert re.fullmatch(expected, ran.stderr)


@pytest.mark.parametrize(
    ("script", "version", "wanted"),
    [
        ("cluster-serving-start", (3, 13, 0), "3.10, 3.11 or 3.12"),
        ("cluster-serving-http", (3, 14, 2), "3.10, 3.11 or 3.12"),
        ("cluster-serving", (3, 9, 18), "3.10, 3.11 or 3.12"),
        ("cluster-serving-bench", (3, 9, 18), "3.10 or later"),
    ],
)
def test_a_python_that_cannot_run_a_command_is_named_in_one_line(script, version, wanted):
    this = ".".join(map(str, version))
    ran = run_in_light_client(
        script, python=f"import platform; sys.version_info = {version}; platform.python_version = lambda: {this!r}"
    )
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
    assert f"error: {script} needs Python {wanted}, and this is {this}: " in ran.stderr
    assert "python3.12 -m venv" in ran.stderr


def test_the_load_generator_runs_on_a_python_that_flink_does_not_support():
    ran = run_in_light_client("cluster-serving-bench", python="sys.version_info = (3, 13, 0)")
    assert "which is not installed" in ran.stderr


def test_all_commands_are_declared():
    assert len(SCRIPTS) == 9


def run_in_shell(words, folder, **environment):
    """Run a line of a shell in a folder, with the commands on its PATH."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-c", words], cwd=folder, env=os.environ | {"PATH": path} | environment, capture_output=True
    )


def test_an_encoding_without_an_arrow_does_not_fail_a_command(tmp_path):
    save_doubling(tmp_path, 4)
    print_arrow = "from cluster_serving.launcher import entry_points as e; e._prepare_streams(); print('x → y ✓ é ☃')"
    ran = run_in_shell(f'"{sys.executable}" -c "{print_arrow}"', tmp_path, PYTHONIOENCODING="latin-1")
    assert (ran.returncode, ran.stdout.decode("latin-1")) == (0, "x -> y + é ?\n")
    ran = run_in_shell("cluster-serving-cli try . --once", tmp_path, PYTHONIOENCODING="latin-1")
    assert ran.returncode == 0, ran.stderr
    assert b"x: float32[?, 4]" in ran.stdout


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_command_works_with_closed_streams(tmp_path, closed):
    ran = run_in_shell(f"cluster-serving-init {closed}", tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
    assert (tmp_path / "config.yaml").exists()
