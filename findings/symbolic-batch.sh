#!/usr/bin/env bash
# Guess: two inputs whose first axis has one name, "batch", must have one size there, or ONNX Runtime refuses them.
# Happens: a name of an axis is not checked. 4 rows and 1 row are broadcast without a warning: a server that has lost rows
#   of one input gets as many answers as it expects.
# Ours: clients send single records, so each call has as many rows of every input (docs/explanation/shared-calls.md).
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.1.3 onnx==1.21.0 onnxruntime==1.32.0
venv/bin/python - <<'PYTHON'
import numpy, onnx, onnxruntime
from onnx import TensorProto, helper

value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3])
graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["y"])], "g", [value("a"), value("b")], [value("y")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
onnx.checker.check_model(model, full_check=True)
session = onnxruntime.InferenceSession(model.SerializeToString())
print("inputs:", [(entry.name, entry.shape) for entry in session.get_inputs()])
(answer,) = session.run(None, {"a": numpy.zeros((4, 3), "f"), "b": numpy.ones((1, 3), "f")})
print("4 rows and 1 row: an answer of", answer.shape)
assert answer.shape == (4, 3)
PYTHON
