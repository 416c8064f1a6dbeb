"""The processes that a supervisor and its standby keep."""

import contextlib
from pathlib import Path

from cluster_serving.launcher.services.process_table import members, start_time


def supervisors(group):
    """Numbers of the active supervisor and its standby."""
    return sorted(members(group))


def kept(group):
    """Number of the process that the supervisors of a group keep; None while there is none."""
    numbers = [number for supervisor in supervisors(group) for number in children(supervisor)]
    # A standby may have started meanwhile; a killed process is a child until the supervisor has taken note.
    own = supervisors(group)
    return next((number for number in numbers if number not in own and start_time(number) is not None), None)


def children(pid):
    """Numbers of the children of a process, of all its threads; none if it has ended."""
    numbers = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            numbers += map(int, file.read_text().split())
    return numbers
