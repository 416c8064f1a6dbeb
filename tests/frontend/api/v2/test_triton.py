"""Triton's own gRPC client, unmodified, in an environment of its own: it needs a newer grpcio than Flink allows."""

import subprocess

import pytest

from tests.support.fixtures.generating import generating
from tests.support.worlds.environments import ROOT, python_with


@pytest.fixture(scope="session")
def triton_python():
    return python_with("tritonclient", ["tritonclient[grpc,http]==2.58.0", "grpcio==1.67.1", "numpy==2.1.3"])


@pytest.mark.usefixtures("echo")
def test_tritons_clients_are_answered(triton_python, serve, report, job):
    report(("x", "", (None, None)), ("s", "str", (None, 1)), max_batch_size=8)
    program = ROOT / "tests" / "support" / "programs" / "triton_program.py"
    done = subprocess.run(
        [triton_python, program, serve("--grpcCompression=true").grpc, job],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "all answered\n"


def test_tritons_client_reads_the_pieces_of_a_decoupled_model(triton_python, serve, redis_server, job, tmp_path):
    program = ROOT / "tests" / "support" / "programs" / "triton_pieces_program.py"
    with generating(redis_server.port, job, tmp_path):
        done = subprocess.run(
            [triton_python, program, serve().grpc, job], capture_output=True, text=True, timeout=180, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "all answered\n"
