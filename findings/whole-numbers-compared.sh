#!/usr/bin/env bash
# Guess: an engine that subtracts whole numbers exactly compares them exactly, too. So 16777217 and 16777216 are two
#   ids in an ONNX file, whether ONNX Runtime or OpenVINO computes it.
# Happens: OpenVINO compares whole numbers as float32 on a CPU, also int32, and whatever the hint of precision: from
#   2**24 on, neighbours are equal, and none is greater. Their difference is exact, so a comparison of it with 0 is
#   right.
# Since: OpenVINO 2023.1.0, the oldest that was tried.
# Fails with numbers below 2**24, which both compare alike.
# Ours: job/models/onnx.py computes ONNX files by ONNX Runtime, not by OpenVINO.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0 openvino==2026.4.1
venv/bin/python - <<'PYTHON'
import numpy, onnx, onnxruntime, openvino
from onnx import parser

inputs, outputs = "int32[n] a, int32[n] b", "bool[n] equal, bool[n] greater, bool[n] same"
body = "equal = Equal(a, b) greater = Greater(a, b) d = Sub(a, b)"
body += " zero = Constant<value = int32 {0}>() same = Equal(d, zero)"
text = f'<ir_version: 9, opset_import: ["": 17]> g ({inputs}) => ({outputs}) {{ {body} }}'
onnx.save(parser.parse_model(text), "model.onnx")
records = {"a": numpy.array([5, 16777217], "i"), "b": numpy.array([4, 16777216], "i")}
session = onnxruntime.InferenceSession("model.onnx")
compiled = openvino.Core().compile_model("model.onnx", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
seen = {
    "onnxruntime": [answer.tolist() for answer in session.run(None, records)],
    "openvino": [compiled(records)[place].tolist() for place in range(3)],
}
for name, answers in seen.items():
    print(f"{name}: 5 and 4, 16777217 and 16777216:", dict(zip(["equal", "greater", "difference is 0"], answers)))
right = [[False, False], [True, True], [False, False]]
assert seen == {"onnxruntime": right, "openvino": [[False, True], [True, False], [False, False]]}, seen
PYTHON
