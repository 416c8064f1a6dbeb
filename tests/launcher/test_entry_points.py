"""The commands as `pyproject.toml` declares them, also where nothing but the light client is installed."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
SCRIPTS = dict(re.findall(r'^(cluster-serving[a-z-]*) = "([\w.]+:\w+)"$', PYPROJECT.read_text("utf8"), re.MULTILINE))
RUN = """
import sys
script, module, function, *sys.argv[1:] = sys.argv[1:]
sys.argv[0] = script
for package in ("typer", "rich", "httpx", "pydantic", "yaml", "starlette", "grpc", "pyflink", "cv2"):
    sys.modules[package] = None
getattr(__import__(module, fromlist=[function]), function)()
"""


def run_in_light_client(script, *arguments):
    """Run a command of an installation without extras, as far as imports tell."""
    module, _, function = SCRIPTS[script].partition(":")
    return subprocess.run(
        [sys.executable, "-c", RUN, f"/venv/bin/{script}", module, function, *arguments], capture_output=True, text=True
    )


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


def test_all_commands_are_declared():
    assert len(SCRIPTS) == 9
