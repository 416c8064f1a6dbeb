"""What the pages about HTTP tell people to type works."""

import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster_serving.frontend.errors import ERRORS
from tests.support.fixtures.commands import BIN
from tests.support.fixtures.generating import EMBEDDER, PARROT, generating

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("reference/http.md", "how-to/asynchronous.md", "how-to/openai.md", "reference/metrics.md")


@pytest.fixture
def texts(redis_server, tmp_path):
    """The models of texts that the page names."""
    with ExitStack() as running:
        for job, code in (("parrot", PARROT), ("words", EMBEDDER)):
            (tmp_path / job).mkdir()
            running.enter_context(generating(redis_server.port, job, tmp_path / job, code))
        yield


@pytest.mark.usefixtures("texts")
def test_every_curl_line_is_answered(ask, tmp_path):
    blocks = re.findall(r"```sh\n(.*?)```", "".join((DOCS / page).read_text("utf8") for page in PAGES), re.DOTALL)
    lines = [line.split("  #")[0] for block in blocks for line in block.splitlines() if line.startswith("curl ")]
    # tests/frontend/api/requests/test_callbacks.py has a receiver.
    lines = [line for line in lines if "callback" not in line]
    assert len(lines) >= 12
    found = ""
    for line in lines:
        words = shlex.split(line.replace("http://localhost:10020", str(ask.base_url)).replace("$id", found))
        done = subprocess.run([words[0], "-sS", "--fail", *words[1:]], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}: {done.stdout} {done.stderr}"
        found = (re.findall(r'"id":"([^"]+)"', done.stdout) or [found])[0]


def test_the_table_of_statuses_is_complete():
    table = (DOCS / "reference" / "errors.md").read_text("utf8").partition("## Statuses of HTTP")[2]
    statuses = {
        int(status) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for status in row.split(", ")
    }
    assert statuses == {error.http_status for error in ERRORS.values()}


@pytest.mark.parametrize("command", [["cluster-serving-http"], ["cluster-serving", "http"]])
def test_both_commands_take_the_same_options(command):
    run = [sys.executable, BIN / command[0], *command[1:]]
    assert "--redisHost" in subprocess.run([*run, "--help"], capture_output=True, text=True, check=True).stdout
    wrong = subprocess.run([*run, "--port=x"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: --port: ")
