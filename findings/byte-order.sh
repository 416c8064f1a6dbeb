#!/usr/bin/env bash
# Guess: an array in the other byte order (">f4", as files of FITS, NetCDF 3 and IDX have it) is converted or refused.
# Happens: ONNX Runtime, XGBoost and OpenCV read its bytes as they are, and answer with other numbers, without a word.
#   LightGBM and OpenVINO convert it, and PyArrow refuses. The guess was wrong for three of six.
# Since: seen with the versions below; older ones were not tried.
# Ours: protocol/tensors.py sends all numbers in one byte order.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.1.3 onnx==1.21.0 onnxruntime==1.32.0 openvino==2026.4.1 xgboost-cpu==3.2.0 lightgbm==4.7.0 \
  opencv-python-headless==4.14.0.94 pyarrow==16.1.0
venv/bin/python - <<'PYTHON'
import cv2, lightgbm, numpy, onnx, onnxruntime, openvino, pyarrow, xgboost
from onnx import TensorProto, helper

records = numpy.random.default_rng(0).normal(size=(300, 3)).astype("f")
swapped = records.astype(">f4")
assert (swapped == records).all()
value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3])
graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [value("x")], [value("y")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
onnx.save(model, "model.onnx")
session = onnxruntime.InferenceSession("model.onnx")
compiled = openvino.Core().compile_model("model.onnx", "CPU")
label = records[:, 0]
boosted = xgboost.train({"nthread": 1}, xgboost.DMatrix(records, label), 5)
forest = lightgbm.train({"verbose": -1, "num_threads": 1}, lightgbm.Dataset(records, label), 5)
programs = {
    "onnxruntime": lambda array: session.run(None, {"x": array})[0],
    "openvino": lambda array: compiled({"x": array})[0].copy(),
    "xgboost": lambda array: boosted.predict(xgboost.DMatrix(array)),
    "lightgbm": forest.predict,
    "opencv": lambda array: cv2.flip(array, 0),
    "pyarrow": lambda array: pyarrow.array(array[:, 0]).to_numpy(),
}
seen = {}
for name, compute in programs.items():
    try:
        seen[name] = "same" if numpy.array_equal(compute(swapped), compute(records)) else "others"
    except (pyarrow.ArrowException, ValueError, TypeError) as error:
        seen[name] = f"refused: {error}"
    print(f"{name}: {seen[name]}")
assert [answer.split(":")[0] for answer in seen.values()] == ["others", "same", "others", "same", "others", "refused"]
PYTHON
