#!/usr/bin/env bash
# Guess: an array in the other byte order (">f4", as files of FITS, NetCDF 3 and IDX have it) is converted or refused.
# Happens: ONNX Runtime, XGBoost and OpenCV read its bytes as they are, and answer with other numbers, without a word.
#   LightGBM and OpenVINO convert it, and PyArrow refuses.
# Since: ONNX Runtime 1.15.0, XGBoost 2.1.1 and OpenCV 4.7.0, the oldest that were tried.
# Ours: protocol/tensors.py sends all numbers in one byte order.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0 openvino==2026.4.1 xgboost-cpu==3.2.0 lightgbm==4.7.0 \
  opencv-python-headless==5.0.0.93 pyarrow==26.0.1
venv/bin/python - <<'PYTHON'
import cv2, lightgbm, numpy, onnx, onnxruntime, openvino, pyarrow, xgboost
from onnx import parser

records = numpy.random.default_rng(0).normal(size=(300, 3)).astype("f")
swapped = records.astype(">f4")
assert (swapped == records).all()
text = '<ir_version: 9, opset_import: ["": 17]> g (float[batch, 3] x) => (float[batch, 3] y) { y = Identity(x) }'
onnx.save(parser.parse_model(text), "model.onnx")
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
