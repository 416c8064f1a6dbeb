#!/usr/bin/env bash
# Guess: OrtValue.numpy() of an output that I/O binding made is a copy, as the answers of run() are arrays of their
#   own.
# Happens: it is a view of the memory that the next run of the same binding writes: the answer given to one client
#   becomes that of the next one. copy_outputs_to_cpu() copies.
# Since: ONNX Runtime 1.19; 1.15.0 to 1.18.1 copied.
# Ours: job/models/onnx.py calls run(), whose arrays are its own.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0
venv/bin/python - <<'PYTHON'
import numpy, onnxruntime
from onnx import parser

text = '<ir_version: 9, opset_import: ["": 17]> g (float[batch, 3] x) => (float[batch, 3] y) { y = Neg(x) }'
model = parser.parse_model(text)
session = onnxruntime.InferenceSession(model.SerializeToString())
binding = session.io_binding()
binding.bind_output("y", "cpu")
answers = {}
for number in 1, 2:
    binding.bind_cpu_input("x", numpy.full((1, 3), number, "f"))
    session.run_with_iobinding(binding)
    answers[number] = binding.get_outputs()[0].numpy(), binding.copy_outputs_to_cpu()[0]
    print(f"after run {number}: numpy() of the first run {answers[1][0]}, copy_outputs_to_cpu() {answers[1][1]}")
assert (answers[1][0] == -2).all() and (answers[1][1] == -1).all()
PYTHON
