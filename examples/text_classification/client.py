"""Classify texts that the model has not seen, and draw the probabilities to result.svg."""

import os
from html import escape
from pathlib import Path

import httpx

URL = os.environ.get("URL", "http://localhost:10020")
COLOURS = {"account": "#7048e8", "billing": "#1971c2", "delivery": "#2f9e44", "product": "#e8590c"}
TEXTS = [
    "why was my card charged two times?",
    "the parcel never came",
    "I do not know my password any more",
    "the display is broken",
    "please pay back the money for the second order",
    "the courier was here, but left no box",
    "my login does not work since yesterday",
    "it gets hot, and the battery lasts minutes",
]

body = {"instances": [{"text": text} for text in TEXTS]}
answer = httpx.post(f"{URL}/models/tickets/predict", json=body, timeout=60)
answer.raise_for_status()

lines = []
for number, (text, prediction) in enumerate(zip(TEXTS, answer.json()["predictions"], strict=True)):
    found = prediction["value"]
    print(f"{found['label']:<9} {text}")
    top, left = 30 * number, 360
    lines.append(f'<text x="350" y="{top + 22}" text-anchor="end">{escape(text)}</text>')
    for label, probability in found["probabilities"].items():
        width = round(240 * probability, 1)
        lines.append(f'<rect x="{left:.1f}" y="{top + 6}" width="{width}" height="22" fill="{COLOURS[label]}"/>')
        left += width
    lines.append(f'<text x="612" y="{top + 22}">{found["label"]}</text>')
height = 30 * len(TEXTS) + 6
head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 690 {height}" font-family="sans-serif" font-size="14">'
ground = f'<rect width="690" height="{height}" fill="#fff"/>'
Path("result.svg").write_text("\n".join([head, ground, *lines, "</svg>\n"]))
print("Wrote result.svg")
