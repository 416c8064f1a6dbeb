#!/usr/bin/env bash
# Guess: decoders of JPEG agree but for one or two of 256 levels, since rounding is left to them.
# Happens: Pillow and OpenCV agree bit for bit, and tf.io.decode_jpeg is up to 18 levels off on a photograph, in two
#   of three values: it takes a faster transform. With dct_method="INTEGER_ACCURATE" it agrees with both, bit for bit.
#   So a model trained by tf.data sees other pixels in a server that reads by another library.
# Since: TensorFlow 2.15.1, Pillow 9.3.0 and OpenCV 4.7.0, the oldest that were tried.
# Ours: job/kinds/images.py reads images by OpenCV.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.4.6 tensorflow-cpu==2.21.0 pillow==13.0.0 opencv-python-headless==5.0.0.93
beside photographs scikit-learn==1.9.1
TF_CPP_MIN_LOG_LEVEL=3 venv/bin/python - 2>log <<'PYTHON'
import io, pathlib

import cv2, numpy, tensorflow
from PIL import Image

most = 0
for path in sorted(pathlib.Path("photographs").rglob("datasets/images/*.jpg")):
    content = path.read_bytes()
    pillow = numpy.asarray(Image.open(io.BytesIO(content))).astype(int)
    others = {
        "opencv": cv2.imdecode(numpy.frombuffer(content, numpy.uint8), cv2.IMREAD_COLOR)[..., ::-1],
        "tensorflow": tensorflow.io.decode_jpeg(content).numpy(),
        "tensorflow accurate": tensorflow.io.decode_jpeg(content, dct_method="INTEGER_ACCURATE").numpy(),
    }
    away = {name: int(abs(pixels - pillow).max()) for name, pixels in others.items()}
    print(f"{path.name}: levels away from Pillow: {away}")
    assert away["opencv"] == away["tensorflow accurate"] == 0
    most = max(most, away["tensorflow"])
assert most > 10, most
PYTHON
