"""Programs of users, run on the Flink that the commands have started."""

import os
import subprocess
from unittest import mock

from cluster_serving.launcher.services import flink_jvm
from cluster_serving.launcher.services.flink_home import FlinkHome
from cluster_serving.launcher.targets.submission import on_this_machine
from cluster_serving.settings.addresses import Address


def submit(cluster, program, *arguments, cwd):
    """`flink run -py`, which ends with the job; returns the running command."""
    with mock.patch.dict(os.environ, {"CLUSTER_SERVING_HOME": str(cluster.state)}):
        home = FlinkHome(next(cluster.state.glob("flink-*/conf")).parent)
        flink = on_this_machine(home, Address("127.0.0.1", cluster.flink_port))
        command = ["run", *flink, "-py", str(program), *map(str, arguments)]
        return subprocess.Popen(
            flink_jvm.command(home, "client", home.logs / "flink-client.log", *command),
            cwd=cwd,
            env=home.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def run(cluster, program, *arguments, cwd):
    """Output of a program that has to succeed."""
    with submit(cluster, program, *arguments, cwd=cwd) as running:
        output, _ = running.communicate(timeout=240)
    assert running.returncode == 0, output
    return output
