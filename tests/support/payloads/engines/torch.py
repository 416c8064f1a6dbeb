"""The formats of PyTorch: TorchScript and torch.export."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.payloads import model_zoo
from tests.support.payloads.engines.engine import HEIGHT, NUMBERS, WIDTH, Engine, Shape


def script_twice(folder: Path, dtype: str, shape: Shape) -> None:
    import torch

    model_zoo.save_torchscript(folder, _modules()["twice"], torch.zeros(2, *shape, dtype=getattr(torch, dtype)))


def script_row_means(folder: Path) -> None:
    import torch

    model_zoo.save_torchscript(folder, _modules()["row means"], torch.zeros(2, 3, HEIGHT, WIDTH))


def script_doubled(folder: Path) -> None:
    import torch

    model_zoo.save_torchscript(folder, _modules()["doubled"], torch.zeros(2))


def export_twice(folder: Path, dtype: str, shape: Shape) -> None:
    import torch

    _export(folder, "twice", torch.zeros(2, *shape, dtype=getattr(torch, dtype)))


def export_row_means(folder: Path) -> None:
    import torch

    _export(folder, "row means", torch.zeros(2, 3, HEIGHT, WIDTH))


def export_doubled(folder: Path) -> None:
    import torch

    _export(folder, "doubled", torch.zeros(2))


def _export(folder: Path, module: str, example: Any) -> None:
    import torch

    model_zoo.save_exported(folder, _modules()[module], example, dynamic_shapes=({0: torch.export.Dim("batch")},))


def _modules() -> dict[str, Any]:
    import torch

    class Twice(torch.nn.Module):
        def forward(self, x):
            return torch.cat([x, x], 1)

    class RowMeans(torch.nn.Module):
        def forward(self, x):
            return x.mean(3)

    class Doubled(torch.nn.Module):
        def forward(self, x):
            return x + x

    return {"twice": Twice(), "row means": RowMeans(), "doubled": Doubled()}


def call_script(folder: Path, x: np.ndarray, output: str) -> Any:
    import torch

    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of TorchScript as a whole
        return torch.jit.load(str(folder / "model.pt"))(torch.from_numpy(x)).numpy()


def call_exported(folder: Path, x: np.ndarray, output: str) -> Any:
    import torch

    with torch.inference_mode():
        return torch.export.load(folder / "model.pt2").module()(torch.from_numpy(x)).numpy()


ENGINES = {
    "TorchScript": Engine(
        "*.pt",
        model_zoo.save_torchscript_digits,
        script_twice,
        NUMBERS,
        script_row_means,
        call_script,
        script_doubled,
    ),
    "torch.export": Engine(
        "*.pt2",
        model_zoo.save_exported_digits,
        export_twice,
        NUMBERS,
        export_row_means,
        call_exported,
        export_doubled,
    ),
}
