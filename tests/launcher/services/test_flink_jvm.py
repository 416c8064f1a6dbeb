"""The commands of Flink's Java programs, beside Flink's own scripts."""

import re
import subprocess

import pytest
import yaml

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import flink_jvm
from cluster_serving.launcher.services.flink_home import FlinkHome

# Prints the options of the JVM, as the last line.
SCRIPT = '. ./config.sh; parse{}ArgsAndExportLogs; echo; echo "$JVM_ARGS"'


@pytest.mark.parametrize(("role", "abbreviation"), [("jobmanager", "Jm"), ("taskmanager", "Tm")])
@pytest.mark.parametrize(
    "options",
    [{}, {"taskmanager.memory.task.heap.size": "2g", "taskmanager.memory.task.off-heap.size": "300m"}],
    ids=["default", "changed"],
)
def test_the_memory_of_a_process_is_what_flinks_scripts_compute(tmp_path, role, abbreviation, options):
    home = FlinkHome(tmp_path)
    home.prepare(options)
    command = ["bash", "-c", SCRIPT.format(abbreviation)]
    ran = subprocess.run(command, env=home.environment(), capture_output=True, text=True, cwd=home.path / "bin")
    computed = {option for option in ran.stdout.splitlines()[-1].split() if option.startswith("-X")}
    given = yaml.safe_load((tmp_path / "conf" / "config.yaml").read_text())
    assert computed == {re.sub(r"\d+m$", in_bytes, option) for option in flink_jvm.memory(role, given)}


def test_a_size_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(LaunchError, match=r"jobmanager.memory.process.size is 'much'; expected a size such as"):
        flink_jvm.memory("jobmanager", {"jobmanager.memory.process.size": "much"})


def in_bytes(size):
    return str(int(size[0][:-1]) << 20)
