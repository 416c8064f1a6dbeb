"""The codes with which commands end are those of docs/reference/commands.md."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from cluster_serving.launcher.jobs.store import JobStore
from tests.support.fixtures.commands import BIN, run

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"
TABLE = [int(code) for code in re.findall(r"^\| (\d+) \|", PAGE.read_text("utf8"), re.MULTILINE)]
SLEEPING = """
import signal
import time
import typer
from cluster_serving.launcher import cli

for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
app = typer.Typer()

@app.command()
def sleep():
    print("begun", flush=True)
    time.sleep(60)

cli._run(app)
"""
FAILING_HANDLER = "class Handler:\n  def predict(self, batch):\n    1 / 0\n"
NOWHERE = "redisUrl: localhost:1\nflinkRestUrl: localhost:1\n"


@pytest.fixture
def command(tmp_path):
    """Run a command in a folder with a model that fails, and with servers that are not there."""
    (tmp_path / "config.yaml").write_text(f"modelPath: model\n{NOWHERE}")
    (tmp_path / "moved.yaml").write_text(f"modelPath: nowhere\n{NOWHERE}")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "handler.py").write_text(FAILING_HANDLER)
    (tmp_path / "damaged.parquet").write_text("PAR1")
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(tmp_path / "state"), "COLUMNS": "200"}
    return lambda line: run(*line.split(), cwd=tmp_path, environment=environment)


def test_each_code_of_the_page_has_a_test():
    assert TABLE == [0, 1, 1, 1, 1, 1, 2, 3, 129, 130, 143]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("cluster-serving-init -c other/config.yaml", 0),
        ("cluster-serving-start --version", 0),
        ("cluster-serving --help", 0),
        ("cluster-serving-cli list", 1),
        ("cluster-serving-cli doctor -c moved.yaml", 1),
        ("cluster-serving-cli try --input x=[1.0]", 1),
        ("cluster-serving-cli score --input damaged.parquet --output out", 1),
        ("cluster-serving-bench --redis-url redis://localhost:1", 1),
        ("cluster-serving-http --httpsEnabled=true --httpsCertificatePath=no.pem --httpsPrivateKeyPath=no.pem", 1),
        ("cluster-serving-init", 2),
        ("cluster-serving-start --paralelism 2", 2),
        ("cluster-serving-start -c missing.yaml", 2),
        ("cluster-serving-cli update --canary 150", 2),
        ("cluster-serving-cli scale many", 2),
        ("cluster-serving-cli status a{b", 2),
        ("cluster-serving-http --port many", 2),
        ("cluster-serving-http --ports 1", 2),
        ("cluster-serving-bench --mode open", 2),
        ("cluster-serving", 2),
    ],
)
def test_a_command_ends_with_the_code_of_its_page(command, line, code):
    ran = command(line)
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr


def test_status_tells_a_job_that_is_known_from_one_that_is_not(own_cluster, redis_server, job):
    config = own_cluster.config(jobName=job, modelPath="model", redisUrl=f"127.0.0.1:{redis_server.port}")
    status = ("cluster-serving-cli", "status", "-c", config)
    assert own_cluster.run(*status).returncode == 1
    with redis.Redis(port=redis_server.port, decode_responses=True) as client:
        JobStore(client, job).note("failed", error="no slots")
    assert own_cluster.run(*status).returncode == 3


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_told_by_the_code(number):
    with subprocess.Popen([sys.executable, "-c", SLEEPING], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
    assert process.returncode == 128 + number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_front_end_with_the_code_of_the_signal(number, redis_server, tmp_path):
    words = [BIN / "cluster-serving-http", "--redisUrl", redis_server.url, "--port=0", "--grpcEnabled=false"]
    # A shell lets what runs in its background ignore SIGINT, the tests too.
    words = ["env", "--default-signal=INT", *words]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert "answers at" in process.stdout.readline()
        process.send_signal(number)
    # Python has a negative number for what a shell reports as 128 and the signal.
    assert process.returncode in (128 + number, -number)
