#!/usr/bin/env bash
# Guess: a grey PNG of 16 bits becomes one of 8 bits by scaling (65535 is white), in Pillow as in OpenCV.
# Happens: Pillow's convert("L") and convert("RGB") cut at 255: 256 is as white as 65535, and an X-ray is a white square.
#   OpenCV scales. A model gets another picture, by the library of its server.
# Ours: job/images.py reads images by OpenCV.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.1.3 pillow==13.0.0 opencv-python-headless==4.14.0.94
venv/bin/python - <<'PYTHON'
import io

import cv2, numpy
from PIL import Image

png = cv2.imencode(".png", numpy.array([[0, 256, 30000, 65535]], numpy.uint16))[1]
image = Image.open(io.BytesIO(png.tobytes()))
grey, colour = numpy.asarray(image.convert("L"))[0].tolist(), numpy.asarray(image.convert("RGB"))[0, :, 0].tolist()
scaled = cv2.imdecode(png, cv2.IMREAD_GRAYSCALE)[0].tolist()
print(f"0, 256, 30000, 65535: Pillow L {grey}, RGB {colour}; OpenCV {scaled}")
assert grey == colour == [0, 255, 255, 255] and scaled[1] <= 1 and 110 < scaled[2] < 120
PYTHON
