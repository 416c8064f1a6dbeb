"""Errors of jobs, as Flink reports them."""

import pytest

from cluster_serving.launcher.services.flink_cause import cause

PYTHON = """\
java.lang.RuntimeException: Python process exited with code 1
Traceback (most recent call last):
  File "/x/main.py", line 3, in main
    job()
  File "/x/job.py", line 8, in job
    raise ModelError("no such input: y")
cluster_serving.protocol.errors.ModelError: no such input: y

org.apache.flink.client.program.ProgramAbortException
	at org.apache.flink.client.python.PythonDriver.main(PythonDriver.java:140)
"""
JAVA = """\
org.apache.flink.runtime.JobException: Recovery is suppressed
	at org.apache.flink.A.b(A.java:1)
Caused by: java.lang.IllegalStateException: broken
	at org.apache.flink.A.c(A.java:2)
	... 3 more
"""
REPEATED = """\
org.apache.flink.A: Could not execute
Caused by: org.apache.flink.Abort: java.io.IOException: Cannot run program "python": error=2, No such file
	at org.apache.flink.A.b(A.java:1)
Caused by: java.io.IOException: Cannot run program "python": error=2, No such file
	at java.base/java.lang.B.c(B.java:2)
Caused by: java.io.IOException: error=2, No such file
	... 3 more
"""


WORKER_ENDED = """\
java.lang.RuntimeException: Error while waiting for BeamPythonFunctionRunner flush
	at org.apache.flink.A.b(A.java:1)
Caused by: java.lang.RuntimeException: Failed to close remote bundle
	... 12 more
Caused by: java.util.concurrent.ExecutionException: org.A.StatusRuntimeException: CANCELLED: client cancelled
	at java.base/java.lang.B.c(B.java:2)
Caused by: org.A.StatusRuntimeException: CANCELLED: client cancelled
	... 1 more
"""


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (PYTHON, "cluster_serving.protocol.errors.ModelError: no such input: y"),
        (JAVA, "java.lang.IllegalStateException: broken"),
        (REPEATED, 'java.io.IOException: Cannot run program "python": error=2, No such file'),
        (
            WORKER_ENDED,
            "the process of a slot crashed or was killed, perhaps for lack of memory; see cluster-serving-cli logs "
            "--errors, and cluster-serving-cli dead list for requests that it died of",
        ),
        (
            "java.lang.RuntimeException: A\nCaused by: java.lang.NoSuchFieldException: loadedLibraryNames\n",
            "the Python of the TaskManager prints text when it starts, which Flink's thread mode takes for a path: see "
            "that python -c pass prints nothing where the TaskManagers run (PYTHONWARNINGS, sitecustomize), or set "
            "executionMode: process",
        ),
        (
            "org.apache.flink.runtime.jobmaster.JobMasterException: TaskManager with id tm-1 is no longer reachable.",
            "TaskManager tm-1 ended or hangs; the job goes on once a TaskManager has free slots",
        ),
        ("one line", "one line"),
        ("", "unknown"),
    ],
)
def test_the_cause_is_one_line_of_a_trace(trace, expected):
    assert cause(trace) == expected
