"""Layers behind the pooling of an embedding: folders such as `2_Dense`, as sentence-transformers writes them."""

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.inputs import Array

WEIGHTS = "model.safetensors"
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
_BFLOAT16 = "BF16"

ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "Identity": lambda x: x,
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "SiLU": lambda x: x / (1 + np.exp(-x)),
}
"""Classes of `torch.nn` by name."""


class Layer:
    """A dense layer, or a `LayerNorm`.

    Args:
        folder: Holds `config.json` and `model.safetensors`.

    Attributes:
        takes: Numbers in a vector that it takes.
        makes: Numbers in a vector that it returns.

    Raises:
        ModelError: If the files are missing or damaged, or the layer is of another kind.
    """

    def __init__(self, folder: Path) -> None:
        self._name = folder.name
        try:
            config = json.loads((folder / "config.json").read_text("utf8"))
            weights = read_safetensors(folder / WEIGHTS)
            self._norm = (weights["norm.weight"], weights["norm.bias"]) if "norm.weight" in weights else None
            self._matrix = None if self._norm else weights["linear.weight"].T
        except (OSError, ValueError, KeyError, struct.error) as error:
            raise ModelError(
                f"{folder} of embeddingLayers cannot be read: {error}; expected config.json and {WEIGHTS} of a Dense "
                "or LayerNorm, as sentence-transformers saves it"
            ) from error
        self._bias = weights.get("linear.bias", np.float32(0))
        activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
        if activation not in ACTIVATIONS:
            raise ModelError(f"{folder} has the activation {activation}; expected {', '.join(ACTIVATIONS)}")
        self._activation = ACTIVATIONS[activation]
        self._residual = weights["residual.weight"].T if "residual.weight" in weights else None
        self._adds = bool(config.get("use_residual"))
        array = weights["norm.weight"] if self._matrix is None else self._matrix
        self.takes, self.makes = array.shape[0], array.shape[-1]

    def __str__(self) -> str:
        return self._name

    def __call__(self, vectors: Array) -> Array:
        """Compute (n, takes) → (n, makes), in the dtype of the vectors."""
        wide = vectors.astype(np.float32, copy=False)
        return self._computed(wide).astype(vectors.dtype, copy=False)

    def _computed(self, vectors: Array) -> Array:
        if self._norm:
            weight, bias = self._norm
            centred = vectors - vectors.mean(axis=-1, keepdims=True)
            # The epsilon of torch.nn.LayerNorm.
            return np.asarray(centred / np.sqrt(centred.var(axis=-1, keepdims=True) + 1e-5) * weight + bias)
        made = self._activation(_product(vectors, self._matrix) + self._bias)
        if not self._adds:
            return np.asarray(made)
        return np.asarray(made + (vectors if self._residual is None else _product(vectors, self._residual)))


def _product(vectors: Array, matrix: Any) -> Array:
    # A product of all rows is rounded otherwise than that of one: an answer would depend on the others of its call.
    return np.stack([row @ matrix for row in vectors])


def read_safetensors(file: Path) -> dict[str, Array]:
    """Return the tensors of a file by name, in float32 (float64 stays).

    The format is 8 bytes with the length of a header, the header in JSON, and the bytes of the tensors.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is cut off, or a tensor is not of floats.
    """
    content = file.read_bytes()
    if len(content) < 8:
        raise ValueError(f"{file.name} is cut off")
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    return {name: _tensor(content[end:], name, about) for name, about in header.items() if name != "__metadata__"}


def _tensor(data: bytes, name: str, about: Mapping[str, Any]) -> Array:
    start, end = about["data_offsets"]
    if about["dtype"] == _BFLOAT16:
        # The upper half of a float32.
        array = (np.frombuffer(data[start:end], "<u2").astype("<u4") << 16).view("<f4")
    elif about["dtype"] in _DTYPES:
        array = np.frombuffer(data[start:end], _DTYPES[about["dtype"]])
    else:
        raise ValueError(f"the tensor {name} has the dtype {about['dtype']}; expected floats")
    array = array.reshape(about["shape"])
    return array if array.dtype == np.float64 else array.astype(np.float32)
