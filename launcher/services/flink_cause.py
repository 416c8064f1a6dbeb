"""What failed, from a stack trace of Flink."""

import re

_WORKER_ENDED = (
    "the process of a slot crashed or was killed, perhaps for lack of memory; see cluster-serving-cli logs --errors, "
    "and cluster-serving-cli dead list for requests that it died of"
)
"""What is said of a worker of process mode that is gone. Beam says that a client was cancelled."""

_NOISY_PYTHON = (
    "the Python of the TaskManager prints text when it starts, which Flink's thread mode takes for a path: see that "
    "python -c pass prints nothing where the TaskManagers run (PYTHONWARNINGS, sitecustomize), or set "
    "executionMode: process"
)
"""What is said where pemja, which reads paths that Python prints, found none and tried a field of older Javas."""

_MANAGER_ENDED = re.compile(
    r"TaskManager with id (\S+) (?:is no longer reachable|timed out)|(The TaskExecutor is shutting down)"
)
"""What Flink says of a TaskManager whose process ended, or hangs."""


def cause(trace: str) -> str:
    """Return the line with the error of a Java or Python stack trace."""
    _, is_python, python = trace.rpartition("Traceback (most recent call last):\n")
    if is_python:
        # The frames are indented; the error follows them.
        return next((line for line in python.splitlines() if line and not line.startswith(" ")), "unknown").strip()
    lines = [line.strip() for line in trace.splitlines() if line.strip()] or ["unknown"]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    if not causes:
        return _of_manager(lines[0])
    told = _of_manager(causes.pop())
    if told.endswith("StatusRuntimeException: CANCELLED: client cancelled"):
        return _WORKER_ENDED
    if told.endswith("NoSuchFieldException: loadedLibraryNames"):
        return _NOISY_PYTHON
    # Java repeats the message of a cause, with what it was about before it: 'Cannot run program "python": error=2'.
    while causes and causes[-1].endswith(told.partition(": ")[2] or told) and not causes[-1].endswith(told):
        told = causes.pop()
    return told


def _of_manager(told: str) -> str:
    """Return what is said of a TaskManager that is gone; any other line as it is."""
    found = _MANAGER_ENDED.search(told)
    if not found:
        return told
    name = f" {found[1]}" if found[1] else ""
    return f"TaskManager{name} ended or hangs; the job goes on once a TaskManager has free slots"
