"""Make payments, some of them fraud; train a model on half of them, and write it to model/ and the others to a file."""

import json
from pathlib import Path

import numpy as np
import torch
from torch import nn

FEATURES = ("amount", "hour", "distance", "minutes")  # distance from the last payment in km, and minutes since then

random = np.random.default_rng(0)
count = 2400
is_fraud = random.random(count) < 0.03
payments = np.column_stack(
    [
        np.where(is_fraud, random.lognormal(6, 0.7, count), random.lognormal(3.3, 0.9, count)),
        np.where(is_fraud, random.integers(0, 6, count), random.integers(7, 24, count)),
        np.where(is_fraud, random.lognormal(6, 1, count), random.lognormal(1.5, 1.2, count)),
        np.where(is_fraud, random.lognormal(2, 1, count), random.lognormal(6, 1, count)),
    ]
).astype("f4")


class Score(nn.Module):
    """The probability of fraud, from the logarithms of the numbers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(len(FEATURES), 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, payment):
        return {"score": self.layers(payment.log1p()).sigmoid().squeeze(1)}


half = count // 2
x, y = torch.tensor(payments[:half]), torch.tensor(is_fraud[:half], dtype=torch.float32)
torch.manual_seed(0)
model = Score()
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(400):
    optimizer.zero_grad()
    nn.functional.binary_cross_entropy(model(x)["score"], y).backward()
    optimizer.step()

Path("model").mkdir(exist_ok=True)
free = {"payment": {0: torch.export.Dim("batch")}}
torch.export.save(torch.export.export(model.eval(), (x[:2],), dynamic_shapes=free), "model/score.pt2")
rows = [dict(zip(FEATURES, row.tolist(), strict=True)) for row in payments[half:]]
rows[7]["amount"] = "twelve"  # a payment that no model can score
lines = [json.dumps({"id": number, **row, "fraud": bool(is_fraud[half + number])}) for number, row in enumerate(rows)]
Path("payments.json").write_text("\n".join(lines) + "\n")
print(f"Wrote model/, and {len(lines)} payments to payments.json")
