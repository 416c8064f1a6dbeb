"""Classify the files in images/, and write them with their labels to result.png."""

import base64
import os
from pathlib import Path

import cv2
import httpx
import numpy as np

URL = os.environ.get("URL", "http://localhost:10020")
COLUMNS = 4

files = sorted(Path("images").glob("*.png"))
instances = [{"image": {"b64": base64.b64encode(file.read_bytes()).decode()}} for file in files]
answer = httpx.post(f"{URL}/models/digits/predict", json={"instances": instances}, timeout=60)
answer.raise_for_status()

tiles = []
for file, prediction in zip(files, answer.json()["predictions"], strict=True):
    best = prediction["value"][0]
    print(f"{file.name}: {best['label']} ({best['prob']:.1%})")
    tile = cv2.copyMakeBorder(cv2.imread(str(file)), 8, 28, 38, 38, cv2.BORDER_CONSTANT, value=(255, 255, 255))
    text = f"{best['label']} {best['prob']:.0%}"
    cv2.putText(tile, text, (30, 92), cv2.FONT_HERSHEY_SIMPLEX, 0.45, (60, 60, 60), 1, cv2.LINE_AA)
    tiles.append(tile)
rows = [np.hstack(tiles[start : start + COLUMNS]) for start in range(0, len(tiles), COLUMNS)]
cv2.imwrite("result.png", np.vstack(rows))
print("Wrote result.png")
