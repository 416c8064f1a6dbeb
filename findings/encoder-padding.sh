#!/usr/bin/env bash
# Guess: torch.no_grad() saves memory, and changes no answer.
# Happens: nn.TransformerEncoder takes another path without gradients, with nested tensors: places that are padding are
#   zeros there, and numbers like any other with gradients. A pooling over all places depends on no_grad.
# Since: PyTorch SINCE
# Ours: job/models/torch/module.py computes all calls in inference mode, so that answers follow one path.
# Where an index serves CUDA builds of torch, set PIP_INDEX_URL to one with CPU builds.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.1.3 torch==2.13.0
venv/bin/python - <<'PYTHON'
import torch

torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
encoder = torch.nn.TransformerEncoder(layer, 1).eval()
records = torch.randn(2, 10, 16)
padding = torch.arange(10).expand(2, 10) >= torch.tensor([[10], [4]])
with torch.no_grad():
    quiet = encoder(records, src_key_padding_mask=padding)
loud = encoder(records, src_key_padding_mask=padding)
print(f"2 records, no_grad: {tuple(quiet.shape)}; with gradients: {tuple(loud.shape)}")
print("first place of padding:", quiet[1, 4, :2].tolist(), loud[1, 4, :2].tolist())
assert quiet[1, 4:].eq(0).all() and loud[1, 4:].ne(0).all()
PYTHON
