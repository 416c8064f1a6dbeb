"""Commands that a signal ends, and the table of the commands."""

import inspect
import signal
import subprocess
import sys

import pytest

from cluster_serving.launcher.commands import COMMANDS

COMMAND = """
import signal
import time
from cluster_serving.launcher import cli

# Whoever runs the tests may ignore it.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

def app():
    try:
        print("begun", flush=True)
        time.sleep(60)
    finally:
        print("undoing", flush=True)
        time.sleep(1)
        print("undone", flush=True)

cli._run(app)
"""


@pytest.mark.parametrize("numbers", [(signal.SIGHUP, signal.SIGHUP), (signal.SIGTERM, signal.SIGHUP)])
def test_a_second_signal_does_not_end_what_undoes(numbers):
    with subprocess.Popen([sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, text=True) as process:
        for number, said in zip(numbers, ("begun", "undoing"), strict=True):
            assert process.stdout.readline().strip() == said
            process.send_signal(number)
        assert process.stdout.read().strip() == "undone"
    assert process.returncode == 128 + numbers[0]


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_table_has_the_first_words_of_each_docstring(command):
    first, _, _ = inspect.getdoc(command.load()).partition("\n\n")
    assert command.about == first.replace("\n", " ")


def test_a_command_that_looks_at_no_model_and_no_request_imports_little():
    code = """
import sys
from pathlib import Path
from cluster_serving.launcher import targets
from cluster_serving.launcher.commands import arguments, changing, observing, running
targets.target_of(arguments.config_of(Path("config.yaml")))
print(*sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"fsspec", "cv2", "numpy", "pyarrow", "httpx", "cryptography.x509", "pydantic_settings", "packaging"}
    heavy |= {"cluster_serving.launcher.commands.doctor"}
    heavy |= {f"cluster_serving.launcher.targets.{name}.application" for name in ("yarn", "kubernetes")}
    imported = set(ran.stdout.split())
    assert not heavy & imported
    # Of models, the questions alone.
    models = {name for name in imported if name.startswith("cluster_serving.job.models.")}
    assert models == {"cluster_serving.job.models.folder"}


def test_help_imports_neither_redis_nor_pydantic():
    code = "import sys; from cluster_serving.launcher import cli; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"redis", "pydantic", "httpx", "numpy", "pyarrow", "cryptography", "yaml", "logging.handlers"}
    assert not heavy & set(ran.stdout.split())
