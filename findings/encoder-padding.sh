#!/usr/bin/env bash
# Guess: torch.no_grad() saves memory, and changes no answer.
# Happens: nn.TransformerEncoder takes another path without gradients, with nested tensors: places that are padding
#   are zeros there, and numbers like any other with gradients. A pooling over all places depends on no_grad. With
#   enable_nested_tensor=False they are numbers on both paths.
# Since: PyTorch 2.13.0; the index has no CPU build of other versions for Python 3.11, so those were not tried.
# Ours: job/models/torch/module.py computes all calls in inference mode, so that answers follow one path.
# Where an index serves CUDA builds of torch, set PIP_INDEX_URL to one with CPU builds.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.4.6 torch==2.13.0
venv/bin/python - <<'PYTHON'
import torch

records = torch.randn(2, 10, 16, generator=torch.Generator().manual_seed(0))
padding = torch.arange(10).expand(2, 10) >= torch.tensor([[10], [4]])
zeros = {}
for nested in True, False:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=nested).eval()
    with torch.no_grad():
        quiet = encoder(records, src_key_padding_mask=padding)
    loud = encoder(records, src_key_padding_mask=padding)
    print(f"enable_nested_tensor={nested}, first place of padding under no_grad:", quiet[1, 4, :2].tolist())
    print(f"enable_nested_tensor={nested}, first place of padding with gradients:", loud[1, 4, :2].tolist())
    zeros[nested] = [bool(answer[1, 4:].eq(0).all()) for answer in (quiet, loud)]
assert zeros == {True: [True, False], False: [False, False]}, zeros
PYTHON
