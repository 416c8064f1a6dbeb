"""Find the digits in the files of images/, and write them with their boxes to result.png."""

import base64
import os
from pathlib import Path

import cv2
import httpx
import numpy as np

URL = os.environ.get("URL", "http://localhost:10020")
COLOUR = (80, 220, 120)

files = sorted(Path("images").glob("*.png"))
instances = [{"image": {"b64": base64.b64encode(file.read_bytes()).decode()}} for file in files]
answer = httpx.post(f"{URL}/models/detector/predict", json={"instances": instances}, timeout=60)
answer.raise_for_status()

drawn = []
for file, prediction in zip(files, answer.json()["predictions"], strict=True):
    image = cv2.imread(str(file))
    print(f"{file.name}: {', '.join(found['label'] for found in prediction['value']) or 'nothing'}")
    for found in prediction["value"]:
        left, top, right, bottom = found["box"]
        text = f"{found['label']} {found['score']:.0%}"
        cv2.rectangle(image, (left, top), (right, bottom), COLOUR, 1)
        cv2.putText(image, text, (left, max(top - 4, 12)), cv2.FONT_HERSHEY_SIMPLEX, 0.4, COLOUR, 1, cv2.LINE_AA)
    drawn.append(cv2.copyMakeBorder(image, 2, 2, 2, 2, cv2.BORDER_CONSTANT, value=(255, 255, 255)))
cv2.imwrite("result.png", np.hstack(drawn))
print("Wrote result.png")
