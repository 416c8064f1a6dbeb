import subprocess
import sys


def test_a_submission_describes_functions_without_apache_beam():
    program = """
import sys

from cluster_serving.job.submission import leave_out_beam

leave_out_beam()
from pyflink.fn_execution import flink_fn_execution_pb2

import cluster_serving.job.topology

heavy = {"redis", "numpy", "pyarrow", "cluster_serving.job.operators", "cluster_serving.job.models"}
assert not heavy & set(sys.modules)
print(flink_fn_execution_pb2.UserDefinedDataStreamFunction.KEYED_PROCESS, "apache_beam" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split()[1:] == ["False"]
    assert int(done.stdout.split()[0]) > 0
