"""What docs/http.md tells people to type works."""

import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster_serving.frontend.errors import ERRORS
from cluster_serving.frontend.options import HttpOptions
from tests.support.fixtures.cluster import BIN
from tests.support.fixtures.generating import EMBEDDER, PARROT, generating

DOCS = Path(__file__).parents[2] / "docs"
PROTOCOL, HTTP = DOCS / "protocol.md", DOCS / "http.md"


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
    blocks = re.findall(r"```sh\n(.*?)```", HTTP.read_text("utf8"), re.DOTALL)
    lines = [line.split("  #")[0] for block in blocks for line in block.splitlines() if line.startswith("curl ")]
    assert len(lines) >= 8
    found = ""
    for line in lines:
        words = shlex.split(line.replace("http://localhost:10020", str(ask.base_url)).replace("<id>", found))
        done = subprocess.run([words[0], "-sS", "--fail", *words[1:]], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}: {done.stdout} {done.stderr}"
        found = (re.findall(r'"id":"([^"]+)"', done.stdout) or [found])[0]


def test_the_options_are_those_that_there_are():
    named = set(re.findall(r"^\| (`[^|]*) \|", HTTP.read_text("utf8").partition("## Options")[2], re.MULTILINE))
    options = {name for names in named for name in re.findall(r"`([a-z]\w*)`", names) if "_" not in name}
    known = {field.alias for field in HttpOptions.model_fields.values()}
    assert options
    assert options <= known


def test_the_tables_of_errors_are_complete():
    rows = re.findall(r"^\| (`[A-Z_`, ]+) \| ([\d, ]+) \| ([A-Z_, ]+) \|", PROTOCOL.read_text("utf8"), re.MULTILINE)
    told = {}
    for codes, statuses, grpc in rows:
        codes, statuses, grpc = (cell.replace("`", "").split(", ") for cell in (codes, statuses, grpc))
        told |= {
            code: (int(statuses[min(at, len(statuses) - 1)]), grpc[min(at, len(grpc) - 1)])
            for at, code in enumerate(codes)
        }
    assert told == {code: (error.http_status, error.grpc_status) for code, error in ERRORS.items()}
    table = HTTP.read_text("utf8").partition("## Errors")[2].partition("\n## ")[0]
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
