"""Embeddings: one vector for a text, from the vectors of its tokens."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from cluster_serving.job.batch import are_gathered
from cluster_serving.job.models.base import Model, TensorSpec, Wrapper
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.inputs import Array

OUTPUT = "embedding"
"""Name of the output that pooling makes."""

_POOLINGS: Mapping[str, Callable[[Array], Array]] = {
    "mean": lambda tokens: tokens.mean(axis=-2),
    "cls": lambda tokens: tokens[..., 0, :],
    "last": lambda tokens: tokens[..., -1, :],
}


class EmbeddingModel(Wrapper):
    """A model whose vectors of tokens are pooled to one vector per record, and normalised.

    Pooling takes the first output of three dimensions (records, tokens, numbers); it is the only output then, and has
    the name `OUTPUT`. Without pooling, all outputs that are vectors are normalised.

    Args:
        model: Computes the vectors of tokens, without those of padding. It is closed with this one.
        pooling: `mean`, `cls` (the first token), `last`, or empty if the model pools.
        normalize: Divide vectors by their length (L2).

    Raises:
        ModelError: If no output fits.
    """

    def __init__(self, model: Model, pooling: str, normalize: bool) -> None:
        super().__init__(model)
        self.padded = model.padded
        self._pool = _POOLINGS[pooling] if pooling else None
        self._normalize = normalize
        rank = 3 if pooling else 2
        self._fitting = [index for index, spec in enumerate(model.outputs) if spec.shape and len(spec.shape) == rank]
        if not self._fitting:
            key, needs = ("pooling", "a vector per token") if pooling else ("normalize", "a vector per record")
            raise ModelError(
                f"{key} needs an output with {needs}, of {rank} dimensions; the model has "
                f"{', '.join(map(str, model.outputs))}"
            )
        if pooling:
            spec = model.outputs[self._fitting[0]]
            self.outputs = [TensorSpec(OUTPUT, spec.dtype, (None, spec.shape[2] if spec.shape else None))]

    def predict(self, inputs: Sequence[Array]) -> list[Array]:
        """See `Model.predict`."""
        outputs = self._model.predict(inputs)
        if self._pool is not None:
            tokens = outputs[self._fitting[0]]
            pooled = np.stack([*map(self._pool, tokens)]) if are_gathered(tokens) else self._pool(tokens)
            return [_unit(pooled) if self._normalize else pooled]
        return [_unit(output) if index in self._fitting else output for index, output in enumerate(outputs)]


def _unit(vectors: Array) -> Array:
    """Return vectors of length 1; those of zeros stay, as in sentence-transformers."""
    # In float16 the squares would not fit, and 1e-12 is 0.
    wide = vectors.astype(np.result_type(vectors.dtype, np.float32), copy=False)
    lengths = np.linalg.norm(wide, axis=-1, keepdims=True)
    return np.asarray(wide / np.maximum(lengths, 1e-12), vectors.dtype)
