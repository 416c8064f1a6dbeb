"""A model whose records depend on each other beside a certain value, which no proof at load tries."""

import numpy as np

from tests.support.payloads.model_zoo import save_torchscript

MAGIC = 123.25
REASON = "the watch found that output 'output' of a record depends on the others in its batch"


def save(folder, factor=2.0):
    """Write a model that multiplies a record of four numbers, and adds all records if one has the value."""
    import torch

    class Mixing(torch.nn.Module):
        def forward(self, x):
            # Chosen, not multiplied by 0: what is no number does not come through.
            # The proof tries numbers that the model compares with.
            found = (x - 0.25 == MAGIC - 0.25).any(1, keepdim=True)
            # Sums over the records, by an operator that the reader of graphs does not follow.
            first = torch.zeros_like(x[:, 0], dtype=torch.int64)
            count, total = (torch.zeros(1, each.shape[1]).index_add(0, first, each) for each in (found.float(), x))
            return x * factor + torch.where(count > 0, total, 0.0)

    save_torchscript(folder, Mixing(), torch.ones(2, 4))


def alone(records, factor=2.0):
    """The answers of records that are computed alone."""
    return records * factor + np.where((records == MAGIC).any(1, keepdims=True), records, 0)


def records(count, seed=0):
    """Records, of which some have the value."""
    found = np.random.default_rng(seed).normal(0, 1, (count, 4)).astype(np.float32)
    found[::5, 1] = MAGIC
    return found
