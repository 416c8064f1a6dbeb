"""A process in the background gives way with its session."""

import re
import subprocess
import sys

import pytest

from cluster_serving.protocol.host.background import AUTOGROUP

PROGRAM = """
import os
from cluster_serving.protocol.host.background import AUTOGROUP, give_way
give_way(7)
print(os.getpriority(os.PRIO_PROCESS, 0), AUTOGROUP.read_text() if AUTOGROUP.exists() else "")
"""


def test_it_gives_way_with_its_session():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, start_new_session=True
    )
    niceness, _, group = done.stdout.partition(" ")
    assert niceness == "7"
    if not AUTOGROUP.exists():
        pytest.skip("this kernel has no groups of sessions")
    assert re.search(r"nice 7$", group.strip())
