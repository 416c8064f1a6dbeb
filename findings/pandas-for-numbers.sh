#!/usr/bin/env bash
# Guess: PyArrow imports pandas when it meets a data frame.
# Happens: the first number that becomes a value of Arrow, or an array of NumPy again, imports pandas if it is
#   installed, half a second or more: `pa.scalar(1.5)`, `pa.array`, `to_numpy`, `Schema.empty_table`. Buffers do not.
# Since: PyArrow 12.0.1, the oldest that was tried.
# Ours: protocol/arrow.py, so that a command, and the first request of a slot, import no pandas.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.4.6 pandas==3.1.1 pyarrow==26.0.1
venv/bin/python - <<'PYTHON'
import subprocess
import sys

CALLS = {
    "pa.array([1.5])": True,
    "pa.scalar(1.5)": True,
    "pa.array(numpy.ones(3))": True,
    "pa.nulls(3, pa.float64()).to_numpy(zero_copy_only=False)": True,
    "pa.schema([('x', pa.float64())]).empty_table()": True,
    "pa.nulls(3, pa.float64()).to_pylist()": False,
    "pa.Table.from_batches([], pa.schema([('x', pa.float64())]))": False,
    "pa.Array.from_buffers(pa.float64(), 3, [None, pa.py_buffer(numpy.ones(3))])": False,
}
for call, imports in CALLS.items():
    program = (
        "import sys, time, numpy, pyarrow as pa\n"
        f"start = time.process_time(); {call}\n"
        "print('pandas' in sys.modules, round(time.process_time() - start, 2))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found, seconds = done.stdout.split()
    print(f"{call}: {'imports pandas' if found == 'True' else 'no pandas'}, {seconds} s of processor time")
    assert (found == "True") == imports, call
PYTHON
