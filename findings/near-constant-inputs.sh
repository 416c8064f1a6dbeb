#!/usr/bin/env bash
# Guess: a real network of float32 answers a record alone as in a batch, but for the seventh digit, whatever the
#   record.
# Happens: a record of bytes that hardly differ gets probabilities that differ by tenths of a percent, alone and in a
#   batch of two; of ordinary bytes they agree to a millionth. Kernels round differently for one row, and a
#   normalization of what is nearly constant makes the difference ten thousand times as large.
# Since: ONNX Runtime 1.15.0, the oldest for Python 3.11.
# Ours: what counts as rounding is measured on the network itself (job/models/batched/rounding.py).
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.4.6 onnxruntime==1.32.0
beside files magika==1.0.3
venv/bin/python - <<'PYTHON'
import pathlib

import numpy
import onnxruntime

(file,) = pathlib.Path("files").rglob("model.onnx")
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(str(file), options)
random = numpy.random.default_rng(0)


def probabilities(records):
    return session.run(None, {"bytes": records})[0]


seen = {}
for name, most in ("nearly constant", 2), ("ordinary", 256):
    records = random.integers(0, most, (4, 2048)).astype(numpy.int32)
    alone = numpy.concatenate([probabilities(records[at : at + 1]) for at in range(4)])
    seen[name] = abs(probabilities(records) - alone).max()
    print(f"{name}: alone and together differ by {seen[name]:.1e}")
assert seen["nearly constant"] > 3e-4 and seen["ordinary"] < 1e-5, seen
PYTHON
