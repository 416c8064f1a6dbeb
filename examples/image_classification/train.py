"""Train a small network on the handwritten digits of scikit-learn; write it to model/, and images that it has not seen.

It needs `pip install 'cluster-serving[quickstart,torch]'`.
"""

from pathlib import Path

import cv2
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
HELD_OUT = 12

digits = load_digits()
x = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None]  # one channel
y = torch.tensor(digits.target)

torch.manual_seed(0)
network = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(32 * 4 * 4, len(NAMES)),
)
optimizer = torch.optim.Adam(network.parameters(), 3e-3)
for _ in range(10):
    for rows in torch.randperm(len(x) - HELD_OUT).split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()
        optimizer.step()

Path("model").mkdir(exist_ok=True)
program = torch.export.export(network.eval(), (x[:2],), dynamic_shapes=({0: torch.export.Dim("batch")},))
torch.export.save(program, "model/digits.pt2")
Path("model/labels.txt").write_text("\n".join(NAMES))

Path("images").mkdir(exist_ok=True)
for number, (image, digit) in enumerate(zip(digits.images[-HELD_OUT:], digits.target[-HELD_OUT:], strict=True)):
    pixels = np.kron(np.round(image * 255 / 16), np.ones((8, 8)))  # 64 x 64
    cv2.imwrite(f"images/{number:02}_{NAMES[digit]}.png", pixels)
print("Wrote model/digits.pt2, model/labels.txt and images/")
