"""Train a detector of handwritten digits; write it to model/, with its labels and the handler, and pictures to images/.

A picture has 8 x 8 cells. For each, the network says which digit has its centre there, and the box of that digit.
"""

import shutil
from pathlib import Path

import cv2
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

SIDE, CELLS, NOTHING = 64, 8, 10
random, digits = np.random.default_rng(0), load_digits()


def picture():
    """Return pixels from 0 to 1, and the digit and the box (from 0 to 1) of each cell that has one."""
    pixels, found, taken = np.zeros((SIDE, SIDE), "f4"), {}, np.zeros((SIDE, SIDE), bool)
    for _ in range(random.integers(3, 8)):
        size = int(random.integers(SIDE // 5, SIDE // 3))
        top, left = random.integers(0, SIDE - size, 2)
        place = np.s_[top : top + size, left : left + size]
        if not taken[place].any():
            which = random.integers(len(digits.target))
            pixels[place] = cv2.resize(digits.images[which] / 16, (size, size))
            taken[place] = True
            box = np.array([left, top, left + size, top + size]) / SIDE
            column, row = ((box[:2] + box[2:]) / 2 * CELLS).astype(int)
            found[int(row * CELLS + column)] = (digits.target[which], box)
    return pixels, found


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [(3, 16, 2), (16, 32, 2), (32, 64, 2), (64, 64, 1)]
        blocks = [nn.Sequential(nn.Conv2d(a, b, 3, s, 1), nn.BatchNorm2d(b), nn.ReLU()) for a, b, s in layers]
        self.layers = nn.Sequential(*blocks, nn.Conv2d(64, NOTHING + 1 + 4, 1))
        middles = (torch.arange(CELLS) + 0.5) / CELLS
        self.register_buffer("middles", torch.cartesian_prod(middles, middles).flip(1).repeat(1, 2))
        self.register_buffer("reach", torch.tensor([-0.4, -0.4, 0.4, 0.4]))  # left, top, right, bottom

    def logits_and_boxes(self, x):
        cells = self.layers(x).flatten(2).transpose(1, 2)
        return cells[..., : NOTHING + 1], self.middles + cells[..., NOTHING + 1 :].sigmoid() * self.reach

    def forward(self, x):
        logits, boxes = self.logits_and_boxes(x)
        return {"scores": logits.softmax(2)[..., :NOTHING], "boxes": boxes}


pictures = [picture() for _ in range(3000)]
x = torch.tensor(np.stack([pixels for pixels, _ in pictures]))[:, None].repeat(1, 3, 1, 1)
classes, boxes = torch.full((len(x), CELLS**2), NOTHING), torch.zeros(len(x), CELLS**2, 4)
for number, (_, found) in enumerate(pictures):
    for cell, (digit, box) in found.items():
        classes[number, cell], boxes[number, cell] = int(digit), torch.tensor(box, dtype=torch.float32)
torch.manual_seed(0)
detector = Detector()
optimizer = torch.optim.Adam(detector.parameters(), 3e-3)
for _ in range(10):
    for rows in torch.randperm(len(x)).split(32):
        (logits, given), there = detector.logits_and_boxes(x[rows]), classes[rows] < NOTHING
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), classes[rows].flatten())
        optimizer.zero_grad()
        (loss + 5 * nn.functional.l1_loss(given[there], boxes[rows][there])).backward()
        optimizer.step()

Path("model").mkdir(exist_ok=True)
batch = {"x": {0: torch.export.Dim("batch")}}
torch.export.save(torch.export.export(detector.eval(), (x[:2],), dynamic_shapes=batch), "model/detector.pt2")
Path("model/labels.txt").write_text("\n".join(map(str, range(NOTHING))))
shutil.copy("../handlers/detection/handler.py", "model")
Path("images").mkdir(exist_ok=True)
for pixels, found in [picture() for _ in range(3)]:
    name = "_".join(sorted(str(digit) for digit, _ in found.values()))
    cv2.imwrite(f"images/{name}.png", cv2.resize(pixels * 255, (256, 256)))
