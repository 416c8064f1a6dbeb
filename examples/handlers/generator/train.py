"""Train a small network on a text, in seconds: `python train.py text.txt` writes step.onnx and characters.txt.

It needs `pip install torch 'onnx<1.22' 'protobuf<6'`; serving needs neither torch nor onnx, but onnxruntime.
"""

import sys
from pathlib import Path

import torch


class Step(torch.nn.Module):
    def __init__(self, characters, size=128):
        super().__init__()
        self.embedding = torch.nn.Embedding(characters, size)
        self.cell = torch.nn.GRUCell(size, size)
        self.head = torch.nn.Linear(size, characters)

    def forward(self, character, state):
        state = self.cell(self.embedding(character), state)
        return self.head(state), state


def train(text, folder, steps=150, batch=32, length=32):
    characters = sorted(set(text))
    ids = torch.tensor([characters.index(one) for one in text])
    model = Step(len(characters))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(steps):
        starts = torch.randint(len(ids) - length - 1, (batch,))
        rows = torch.stack([ids[start : start + length + 1] for start in starts])
        state, loss = torch.zeros(batch, 128), 0
        for at in range(length):
            logits, state = model(rows[:, at], state)
            loss = loss + torch.nn.functional.cross_entropy(logits, rows[:, at + 1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    (Path(folder) / "characters.txt").write_text("".join(characters))
    inputs, outputs = ["character", "state"], ["logits", "next_state"]
    torch.onnx.export(
        model.eval(),
        (torch.zeros(1, dtype=torch.int64), torch.zeros(1, 128)),
        Path(folder) / "step.onnx",
        input_names=inputs,
        output_names=outputs,
        dynamic_axes={name: {0: "batch"} for name in inputs + outputs},
        dynamo=False,
    )


if __name__ == "__main__":
    train(Path(sys.argv[1]).read_text(), Path(__file__).parent)
