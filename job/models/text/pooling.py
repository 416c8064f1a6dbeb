"""Embeddings: one vector for a text, from the vectors of its tokens."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from cluster_serving.job.batch import are_gathered
from cluster_serving.job.models.base import Model, TensorSpec
from cluster_serving.job.models.text.layers import Layer
from cluster_serving.job.models.wrapper import Wrapper
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.inputs import Array

OUTPUT = "embedding"
"""Name of the output that pooling makes."""


def _mean(tokens: Array, first: int) -> Array:
    return np.asarray(_sum(tokens) / np.float32(tokens.shape[-2]))


def _mean_sqrt(tokens: Array, first: int) -> Array:
    return np.asarray(_sum(tokens) / np.sqrt(np.float32(tokens.shape[-2])))


def _weighted(tokens: Array, first: int) -> Array:
    weights = np.arange(first + 1, first + 1 + tokens.shape[-2], dtype=_wide(tokens))
    return np.asarray((tokens * weights[:, np.newaxis]).sum(axis=-2) / weights.sum())


def _sum(tokens: Array) -> Array:
    return np.asarray(tokens.sum(axis=-2, dtype=_wide(tokens)))


def _wide(array: Array) -> np.dtype[np.generic]:
    # In float16 sums and squares would not fit.
    return np.result_type(array.dtype, np.float32)


POOLINGS: Mapping[str, Callable[[Array, int], Array]] = {
    "mean": _mean,
    "cls": lambda tokens, _: tokens[..., 0, :],
    "last": lambda tokens, _: tokens[..., -1, :],
    "max": lambda tokens, _: tokens.max(axis=-2),
    "mean_sqrt_len_tokens": _mean_sqrt,
    "weightedmean": _weighted,
}
"""Pooling, as sentence-transformers names it but for `lasttoken`: (tokens, number of the first token) → vectors."""


class EmbeddingModel(Wrapper):
    """A model whose vectors of tokens are pooled to one vector per record, pass through layers, and are normalised.

    Pooling takes the first output of three dimensions (records, tokens, numbers); it is the only output then, and has
    the name `OUTPUT`. Without pooling, all outputs that are vectors are normalised.

    Args:
        model: Computes the vectors of tokens, without those of padding. It is closed with this one.
        pooling: Names of `POOLINGS` with `+` between, whose vectors are joined; empty if the model pools.
        normalize: Divide vectors by their length (L2).
        layers: Compute with the pooled vector, one after the other.
        skipped: Tokens at the start of each record that pooling leaves out, those of a prompt.

    Raises:
        ModelError: If the name of a pooling is unknown, no output fits, or a layer does not.
    """

    def __init__(
        self, model: Model, pooling: str, normalize: bool, layers: Sequence[Layer] = (), skipped: int = 0
    ) -> None:
        super().__init__(model)
        self.padded = model.padded
        self._pools = _pools(pooling)
        self._normalize, self._layers, self._skipped = normalize, layers, skipped
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
            self.outputs = [TensorSpec(OUTPUT, spec.dtype, (None, self._size(spec.shape[2] if spec.shape else None)))]

    def predict(self, inputs: Sequence[Array]) -> list[Array]:
        """See `Model.predict`."""
        outputs = self._model.predict(inputs)
        if self._pools:
            tokens = outputs[self._fitting[0]]
            pooled = np.stack([*map(self._pool, tokens)]) if are_gathered(tokens) else self._pool(tokens)
            for layer in self._layers:
                pooled = layer(pooled)
            return [_unit(pooled) if self._normalize else pooled]
        return [_unit(output) if index in self._fitting else output for index, output in enumerate(outputs)]

    def _pool(self, tokens: Array) -> Array:
        # Texts have more tokens than the prompt; records of a warm-up may have fewer.
        first = min(self._skipped, tokens.shape[-2] - 1)
        counted = tokens[..., first:, :]
        # The first token stays that of the whole text, as in sentence-transformers.
        first_token = POOLINGS["cls"]
        vectors = [
            pool(tokens if pool is first_token else counted, first).astype(tokens.dtype, copy=False)
            for pool in self._pools
        ]
        return vectors[0] if len(vectors) == 1 else np.concatenate(vectors, axis=-1)

    def _size(self, tokens: int | None) -> int | None:
        """Return the length of the vectors; `tokens` is that of the vector of a token."""
        size = tokens and tokens * len(self._pools)
        for layer in self._layers:
            if size is not None and size != layer.takes:
                raise ModelError(f"{layer} of embeddingLayers takes vectors of {layer.takes} numbers, and gets {size}")
            size = layer.makes
        return size


def _pools(text: str) -> list[Callable[[Array, int], Array]]:
    names = text.replace(" ", "").replace("lasttoken", "last").split("+") if text else []
    if unknown := [name for name in names if name not in POOLINGS]:
        raise ModelError(f"pooling is {text!r}; {unknown[0]!r} is not one of {', '.join(POOLINGS)}")
    return [POOLINGS[name] for name in names]


def _unit(vectors: Array) -> Array:
    """Return vectors of length 1; those of zeros stay, as in sentence-transformers."""
    # In float16 1e-12 is 0.
    wide = vectors.astype(_wide(vectors), copy=False)
    lengths = np.linalg.norm(wide, axis=-1, keepdims=True)
    return np.asarray(wide / np.maximum(lengths, 1e-12), vectors.dtype)
