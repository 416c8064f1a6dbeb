"""A model with a `tokenizer.json`: its input is a text."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cluster_serving.job.batch import gather
from cluster_serving.job.models.base import TRIAL_ERRORS, Model, TensorSpec
from cluster_serving.job.models.batched.model import BatchedModel
from cluster_serving.job.models.padded import PaddedModel
from cluster_serving.job.models.text import tokenizer as tokenizer_file
from cluster_serving.job.models.text.layers import Layer
from cluster_serving.job.models.text.pooling import EmbeddingModel
from cluster_serving.job.models.token_counter import TokenCounter
from cluster_serving.job.models.wrapper import Wrapper
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.inputs import Array

INPUT = "text"
"""Name of the input."""

SECOND = "text_pair"
"""Name of the second input of a pair."""

_IDS, _MASK, _TYPES = "input_ids", "attention_mask", "token_type_ids"
# Attribute of an encoding for each input.
_SOURCES = {_IDS: "ids", _MASK: "attention_mask", _TYPES: "type_ids"}
_TRIED_TOKENS = 512


def with_text(model: BatchedModel, folder: Path, options: ModelOptions) -> Model:
    """Return a model as the options want it: with texts as its input, with padding, with embeddings as its output.

    The batch axes of the model are proven before.

    Raises:
        EngineMissing: If texts are wanted, and the package `tokenizers` is not installed.
        ModelError: If `tokenizer.json` or the options do not fit the model.
    """
    if tokenizer_file.is_used(folder, options.tokenizer):
        padded, tokenizer = _tokenized(model, folder, options)
        _check_prompt(tokenizer, options.prompt)
        skipped = 0 if options.pool_prompt else tokenizer_file.prompt_tokens(tokenizer, options.prompt)
        inner = _embedding(padded, folder, options, skipped)
        is_pair = options.tokenizer == tokenizer_file.PAIR
        return TextModel(inner, tokenizer, options.max_text_length, options.prompt, skipped, is_pair)
    if options.prompt or options.tokenizer == tokenizer_file.PAIR:
        key = "prompt" if options.prompt else f"tokenizer: {tokenizer_file.PAIR}"
        raise ModelError(f"{key} is set, and there is no {folder / tokenizer_file.FILE} that reads texts")
    model.prove()
    return _embedding(PaddedModel(model, dict(options.padding)) if options.padding else model, folder, options)


class TextModel(Wrapper):
    """A model of token ids, whose input is a text, or a pair of texts.

    Args:
        model: Takes ids, and masks and types if it has such inputs; its records may differ in length.
        tokenizer: The `tokenizers.Tokenizer`.
        most: Most characters of a text.
        prompt: Stands before each text.
        skipped: Tokens that pooling leaves out; a text needs more.
        is_pair: Two texts become one list of tokens, as for a reranker.
    """

    def __init__(
        self, model: Model, tokenizer: Any, most: int, prompt: str = "", skipped: int = 0, is_pair: bool = False
    ) -> None:
        super().__init__(model)
        self._tokenizer, self._most, self._prompt, self._skipped = tokenizer, most, prompt, skipped
        self.counter = TokenCounter(tokenizer, most, prompt)
        self._sources = [(_SOURCES[spec.name], spec.numpy_dtype) for spec in model.inputs]
        self.inputs = [TensorSpec(name, "str", (None,)) for name in ((INPUT, SECOND) if is_pair else (INPUT,))]

    @property
    def guesses(self) -> bool:
        """False: of the outputs, the lengths alone depend on the text."""
        return False

    def warm_up(self, batch: int | None) -> list[Array] | None:
        """See `Model.warm_up`; an empty text may have no tokens."""
        outputs = self._model.warm_up(batch)
        self.untried = self._model.untried
        return outputs

    def predict(self, inputs: Sequence[Array]) -> list[Array]:
        """See `Model.predict`; raise `InvalidInput` if a text cannot be tokenized."""
        encodings = [
            tokenizer_file.encode(self._tokenizer, texts, self._most, self._prompt, self._skipped)
            for texts in zip(*inputs, strict=True)
        ]
        return self._model.predict(
            [
                gather(np.array(getattr(encoding, source), dtype) for encoding in encodings)
                for source, dtype in self._sources
            ]
        )


def _check_prompt(tokenizer: Any, prompt: str) -> None:
    most = (tokenizer.truncation or {}).get("max_length")
    if prompt and most and len(tokenizer.encode(prompt).ids) >= most:
        raise ModelError(f"prompt takes all {most} tokens of a text (maxTokens), so nothing of the text would be left")


def _embedding(model: Model, folder: Path, options: ModelOptions, skipped: int = 0) -> Model:
    if options.embedding_layers and not options.pooling:
        raise ModelError("embeddingLayers is set without pooling, whose vector the layers take; set pooling: mean")
    if not (options.pooling or options.normalize):
        return model
    layers = [Layer(folder / name) for name in options.embedding_layers]
    if not model.outputs:
        # Some models name their outputs at the first call only.
        model.warm_up(batch=1)
    return EmbeddingModel(model, options.pooling, options.normalize, layers, skipped)


def _tokenized(model: BatchedModel, folder: Path, options: ModelOptions) -> tuple[Model, Any]:
    """Return a model of token ids whose records may differ in length, and the tokenizer that fits it."""
    names = {spec.name for spec in model.inputs}
    file = folder / tokenizer_file.FILE
    if (
        _IDS not in names
        or names - _SOURCES.keys()
        or any(len(spec.record_shape or (0,)) != 1 for spec in model.inputs)
    ):
        raise ModelError(
            f"{file} does not fit the model: it makes {', '.join(_SOURCES)}, with a number per token, and "
            f"{model.describe()}; set tokenizer: none if clients send these inputs themselves"
        )
    limits = [spec.record_shape[0] for spec in model.inputs if spec.record_shape and spec.record_shape[0]]
    tokenizer = tokenizer_file.load(folder, options.max_tokens, min(limits, default=None))
    padding = {_IDS: tokenizer_file.padding_id(tokenizer, folder), _MASK: 0, _TYPES: 0} | dict(options.padding)
    # The engine does not tell all of them (TorchScript).
    model.expect(
        [replace(spec, dtype=spec.dtype or "int64", shape=spec.shape or (None, None)) for spec in model.inputs]
    )
    model.prove()
    padded = PaddedModel(
        model,
        {name: value for name, value in padding.items() if name in names},
        tied=True,
        # Without a mask, padding would change the answers.
        exact=_MASK not in names and not options.padding,
    )
    _try_tokens(padded, tokenizer, file)
    return padded, tokenizer


def _try_tokens(model: Model, tokenizer: Any, file: Path) -> None:
    """Compute as many tokens as a text may have, of the highest id: the weights of the model may be of fewer."""
    highest = tokenizer.get_vocab_size() - 1
    limit = (tokenizer.truncation or {}).get("max_length", 1)
    count = min(limit, _TRIED_TOKENS)
    values = {_IDS: highest, _MASK: 1, _TYPES: 0}
    try:
        model.predict([np.full((1, count), values[spec.name], spec.numpy_dtype) for spec in model.inputs])
    except TRIAL_ERRORS as error:
        raise ModelError(
            f"{file} does not fit the model, which fails on {count} tokens of id {highest}, the highest one: {error}; "
            "set maxTokens if the model takes fewer tokens"
        ) from error
