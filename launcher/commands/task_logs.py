"""Logs of the TaskManagers of a Flink cluster, over its REST API."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from cluster_serving.launcher.command_log import warn
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services.flink_rest import FlinkRest

_POLL_S = 2.0
# A line in Flink's layout; what Python and the engines print has no layout.
_LEVEL = re.compile(r'(?:\d{4}-\d\d-\d\d [\d:,]+ |\{"time":"[^"]*","level":")(TRACE|DEBUG|INFO|WARN|ERROR)\b')


_TROUBLE = re.compile(r"error|exception|traceback|warning|fatal|abort|terminate|killed|cannot|failed", re.IGNORECASE)
"""Words of a line without a level that tells of trouble."""


def lines(flink: FlinkRest, follow: bool, errors: bool) -> Iterator[tuple[str, str]]:
    """Yield TaskManager and text of each line; with `errors`, only warnings, errors and the lines that belong to them.

    With `follow`, new lines come as they are written, without an end.

    Raises:
        LaunchError: If Flink does not answer or has no TaskManager, or, after the lines of the others, if a TaskManager
            does not; with `follow`, the latter is a warning.
    """
    read: dict[tuple[str, str], int] = {}
    sizes: dict[tuple[str, str], int] = {}
    silent: dict[str, str] = {}
    while True:
        managers = flink.task_managers()
        if not (managers or follow):
            raise LaunchError(
                f"no TaskManager runs at {flink.where}, and Flink has only the logs of those that run; their files "
                "stay on their machines"
            )
        for manager, host in managers.items():
            try:
                found = _new(flink, manager, read, sizes)
            except LaunchError:
                told = (
                    f"TaskManager {host} sends no lines: its process hangs, or has died; read the files on its machine"
                )
                if follow and manager not in silent:
                    warn(told)
                silent[manager] = told
                continue
            for each in found:
                for line in chosen(each, errors):
                    yield host, line
        if not follow:
            break
        time.sleep(_POLL_S)
    if silent:
        raise LaunchError("; ".join(silent.values()))


def _new(
    flink: FlinkRest, manager: str, read: dict[tuple[str, str], int], sizes: dict[tuple[str, str], int]
) -> list[list[str]]:
    """Return the new lines of each file of a TaskManager, and note how far they go."""
    found = []
    for name, size in flink.log_files(manager).items():
        if size == sizes.get((manager, name)):
            continue
        # Flink sends a file as a whole.
        sizes[manager, name], text = size, flink.log(manager, name)
        # A file that is shorter than before was begun anew.
        start = read.get((manager, name), 0) if len(text) >= read.get((manager, name), 0) else 0
        # The last line may not be complete.
        read[manager, name] = end = text.rfind("\n", start) + 1 or start
        found.append(text[start:end].splitlines())
    return found


def chosen(found: list[str], errors: bool) -> Iterator[str]:
    """Yield the lines, or only those of warnings and errors, with the stack traces behind them.

    What a program printed before any line with a level counts by its words.
    """
    shown, leveled = not errors, False
    for line in found:
        if level := _LEVEL.match(line):
            shown, leveled = not errors or level[1] in ("WARN", "ERROR"), True
        elif line.startswith("#"):
            # The report of a JVM that dies, whose first line alone has such a word.
            shown = True
        elif errors and not leveled and not (shown and line.startswith((" ", "\t"))):
            shown = bool(_TROUBLE.search(line))
        if shown:
            yield line
