"""Memory of a process that answers bad requests."""

import subprocess
import sys

ALLOWED_MIB = 16


def test_bad_requests_do_not_fill_the_memory():
    # In a process of its own: memory that other tests left behind comes and goes.
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.programs.memory", "3000"], capture_output=True, text=True, check=True
    )
    memory = [float(line.split()[2]) for line in ran.stdout.splitlines() if line.endswith("MiB")]
    assert len(memory) == 10
    # The first rounds fill caches and the allocator's pools.
    assert max(memory[5:]) - memory[4] < ALLOWED_MIB, memory
