"""The commands of Flink's Java programs, beside Flink's own scripts."""

import re
import subprocess

import pytest

from cluster_serving.launcher.services import flink_jvm
from cluster_serving.launcher.services.flink_home import FlinkHome

# Prints the options of the JVM, as the last line.
SCRIPT = '. ./config.sh; parse{}ArgsAndExportLogs; echo; echo "$JVM_ARGS"'


@pytest.mark.parametrize(("role", "abbreviation"), [("jobmanager", "Jm"), ("taskmanager", "Tm")])
def test_the_memory_of_a_process_is_what_flinks_scripts_compute(tmp_path, role, abbreviation):
    home = FlinkHome(tmp_path)
    home.prepare({})
    command = ["bash", "-c", SCRIPT.format(abbreviation)]
    ran = subprocess.run(command, env=home.environment(), capture_output=True, text=True, cwd=home.path / "bin")
    computed = {option for option in ran.stdout.splitlines()[-1].split() if option.startswith("-X")}
    assert computed == {re.sub(r"\d+m$", in_bytes, option) for option in flink_jvm.MEMORY[role]}


def in_bytes(size):
    return str(int(size[0][:-1]) << 20)
