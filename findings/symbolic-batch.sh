#!/usr/bin/env bash
# Guess: two inputs whose first axis has one name, "batch", must have one size there, or ONNX Runtime refuses them.
# Happens: a name of an axis is not checked. 4 rows and 1 row are broadcast without a warning: a server that has lost
#   rows of one input gets as many answers as it expects.
# Since: ONNX Runtime 1.15.0, the oldest for Python 3.11.
# Ours: clients send single records, so each call has as many rows of every input (docs/explanation/shared-calls.md).
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0
venv/bin/python - <<'PYTHON'
import numpy, onnx, onnxruntime
from onnx import parser

inputs = "float[batch, 3] a, float[batch, 3] b"
text = f'<ir_version: 9, opset_import: ["": 17]> g ({inputs}) => (float[batch, 3] y) {{ y = Add(a, b) }}'
model = parser.parse_model(text)
onnx.checker.check_model(model, full_check=True)
session = onnxruntime.InferenceSession(model.SerializeToString())
print("inputs:", [(entry.name, entry.shape) for entry in session.get_inputs()])
(answer,) = session.run(None, {"a": numpy.zeros((4, 3), "f"), "b": numpy.ones((1, 3), "f")})
print("4 rows and 1 row: an answer of", answer.shape)
assert answer.shape == (4, 3)
PYTHON
