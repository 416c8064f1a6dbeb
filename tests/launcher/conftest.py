"""One Flink and one Redis for all tests of the launcher, started by its own commands on free ports."""

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import openvino
import pytest
from openvino import opset13


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass(frozen=True)
class Commands:
    """Runs the commands as a user does: in processes of their own."""

    home: Path
    redis_port: int
    flink_port: int

    def config(self, folder, model, *lines):
        """Write a configuration into a folder and return its path."""
        path = folder / "config.yaml"
        keys = [f"modelPath: {model}", f"redisUrl: localhost:{self.redis_port}"]
        keys += [f"flinkRestUrl: localhost:{self.flink_port}", *lines]
        path.write_text("\n".join(keys))
        return path

    def run(self, command, *arguments, cwd=None):
        """Run one of the functions that pyproject.toml names as commands."""
        return subprocess.run(
            [sys.executable, "-c", f"from cluster_serving.launcher.cli import {command}; {command}()", *arguments],
            cwd=cwd or self.home,
            env=os.environ | {"CLUSTER_SERVING_HOME": str(self.home / "state"), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=180,
        )

    def shutdown(self):
        return self.run("shutdown")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """Commands whose Flink and Redis the first start brings up, and the last test leaves running."""
    commands = Commands(tmp_path_factory.mktemp("cluster"), free_port(), free_port())
    yield commands
    commands.shutdown()


@pytest.fixture
def commands(tmp_path):
    """Commands without anything running; what a test starts is stopped after it."""
    commands = Commands(tmp_path, free_port(), free_port())
    yield commands
    commands.shutdown()


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A model that doubles a vector of four numbers."""
    folder = tmp_path_factory.mktemp("model")
    x = opset13.parameter([-1, 4], np.float32, name="x")
    y = opset13.multiply(x, opset13.constant(np.float32(2)))
    x.output(0).set_names({"x"})
    y.output(0).set_names({"y"})
    openvino.save_model(openvino.Model([y], [x], "double"), folder / "double.xml", compress_to_fp16=False)
    return folder
