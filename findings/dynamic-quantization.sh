#!/usr/bin/env bash
# Guess: a linear layer computes each row by itself, and quantizing it (quantize_dynamic) costs accuracy, not that.
# Happens: the scale of the activations is taken from the whole tensor, so from all rows of a call. A row beside one of
#   larger numbers gets another answer, by tens of percent, and no error.
# Ours: such rows do not share calls (docs/explanation/shared-calls.md).
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.1.3 onnx==1.21.0 onnxruntime==1.32.0
venv/bin/python - 2>log <<'PYTHON'
import numpy, onnx, onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import quantize_dynamic

random = numpy.random.default_rng(0)
weights = numpy_helper.from_array(random.normal(size=(64, 10)).astype("f"), "w")
value = lambda name, size: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])
graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [value("x", 64)], [value("y", 10)], [weights])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), "full.onnx")
quantize_dynamic("full.onnx", "quantized.onnx")
row = random.normal(size=(1, 64)).astype("f")
both = numpy.concatenate([row, row * 50])
changes = {}
for name in "full", "quantized":
    session = onnxruntime.InferenceSession(name + ".onnx")
    run = lambda records: session.run(None, {"x": records})[0][0]
    alone = run(row)
    changes[name] = (abs(run(both) - alone) / abs(alone)).max()
    print(f"{name}: a row beside another one changes by up to {changes[name]:.1%}")
assert changes["full"] < 1e-4 and changes["quantized"] > 0.05, changes
PYTHON
