#!/usr/bin/env bash
# Guess: an engine that does not know an attribute of an ONNX operator refuses the file.
# Happens: OpenVINO leaves out antialias=1 of a linear Resize, without a word: each pixel of a smaller picture comes
#   from two neighbours, not from all that it covers. Stripes become one grey, 40 of 255 levels off.
# Since: OpenVINO 2023.1.0, the oldest that was tried.
# Fails with antialias=0, for which both compute alike.
# Ours: job/models/onnx.py computes ONNX files by ONNX Runtime; job/kinds/images.py resizes pictures outside the model.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0 openvino==2026.4.1 pillow==13.0.0
venv/bin/python - <<'PYTHON'
import numpy, onnx, onnxruntime, openvino
from onnx import parser
from PIL import Image

picture = numpy.tile(numpy.array([0, 0, 255, 0, 0, 0, 255, 255], "f"), (8, 4))
sizes = "s = Constant<value_ints = [1, 1, 2, 8]>()"
seen = {}
for antialias in 0, 1:
    body = f'{sizes} y = Resize<mode = "linear", antialias = {antialias}>(x, , , s)'
    text = f'<ir_version: 9, opset_import: ["": 18]> g (float[1, 1, 8, 32] x) => (float[1, 1, 2, 8] y) {{ {body} }}'
    onnx.save(parser.parse_model(text), "model.onnx")
    records = {"x": picture[None, None]}
    seen["onnxruntime", antialias] = onnxruntime.InferenceSession("model.onnx").run(None, records)[0][0, 0, 0]
    compiled = openvino.Core().compile_model("model.onnx", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    seen["openvino", antialias] = compiled(records)[0][0, 0, 0].copy()
seen["pillow", 1] = numpy.asarray(Image.fromarray(picture).resize((8, 2), Image.Resampling.BILINEAR))[0]
for (name, antialias), row in seen.items():
    print(f"{name}, antialias {antialias}: {row.round().astype(int).tolist()}")
away = {name: float(abs(seen[name, 1] - seen["pillow", 1])[1:-1].max()) for name in ("onnxruntime", "openvino")}
print("levels away from Pillow, but for the edges:", away)
assert abs(seen["openvino", 0] - seen["openvino", 1]).max() < 1e-3 and away["onnxruntime"] < 1 and away["openvino"] > 30
PYTHON
