"""Train two classifiers on data of scikit-learn: flowers (iris) and wines. Each becomes a model folder with labels."""

from pathlib import Path

import torch
from sklearn.datasets import load_iris, load_wine
from torch import nn


def train(name, data):
    x = torch.tensor(data.data, dtype=torch.float32)
    y = torch.tensor(data.target)
    torch.manual_seed(0)
    scale = nn.BatchNorm1d(x.shape[1], momentum=None)  # keeps the mean and the deviation of the data
    network = nn.Sequential(scale, nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, len(data.target_names)))
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(200):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
    folder = Path("model", name)
    folder.mkdir(parents=True, exist_ok=True)
    free = ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(network.eval(), (x[:2],), dynamic_shapes=free), folder / f"{name}.pt2")
    (folder / "labels.txt").write_text("\n".join(data.target_names))


train("flowers", load_iris())
train("wines", load_wine())
print("Wrote model/flowers and model/wines")
