"""A small model that reads texts, with its tokenizer, and ragged records for it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

EXAMPLE = Path(__file__).parents[3] / "examples" / "sentence_model.py"
WORDS = (
    "a",
    "the",
    "cat",
    "dog",
    "sat",
    "on",
    "mat",
    "ran",
    "and",
    "then",
    "slept",
    "in",
    "sun",
    "rain",
    "house",
    "tree",
    "bird",
    "sang",
    "old",
    "new",
)
SIZE = 16
"""Length of the vector of a token."""


@cache
def sentence_model() -> ModuleType:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("sentence_model", EXAMPLE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["sentence_model"] = module
    spec.loader.exec_module(module)
    return module


@cache
def bert() -> Any:
    """A BERT of random weights, with two layers; it takes 32 tokens at most."""
    import torch

    torch.manual_seed(0)
    config = {
        "hidden_size": SIZE,
        "intermediate_size": 32,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 32,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "type_vocab_size": 2,
        "vocab_size": 64,
    }
    module = sentence_model().Bert(config)
    for parameter in module.parameters():
        parameter.data.normal_(0, 0.5)
    return module.eval()


def save_model(folder: Path) -> None:
    """`input_ids`, `attention_mask`, `token_type_ids` int64 [?, ?] → `last_hidden_state` float32 [?, ?, 16]."""
    sentence_model().save(bert(), folder)


def save_module(module: Any, folder: Path, inputs: Sequence[str], output: str) -> None:
    """A module of token ids, and masks or types; records and tokens are free."""
    sentence_model().save(module, folder, inputs, output)


def save_tokenizer(folder: Path, limit: int | None = 32, words: Sequence[str] = WORDS) -> Any:
    """Write a tokenizer.json of words between [CLS] and [SEP], and return the tokenizer."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary = {token: index for index, token in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", *words))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))  # noqa: S106
    if words is WORDS:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    if limit:
        tokenizer.enable_truncation(limit)
    # As files of the Hub have it; a server pads as it needs.
    tokenizer.enable_padding(length=40)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    return tokenizer


def save_reader(folder: Path) -> Any:
    """Write model and tokenizer, and return the tokenizer."""
    save_model(folder)
    return save_tokenizer(folder)


def tokens(*texts: str) -> list[np.ndarray]:
    """The vectors of the tokens of each text, computed alone: float32 (tokens, 16)."""
    import tempfile

    import torch

    with tempfile.TemporaryDirectory() as folder:
        tokenizer = save_tokenizer(Path(folder))
    vectors = []
    for text in texts:
        ids = torch.tensor([tokenizer.encode(text).ids])
        with torch.no_grad():
            vectors.append(bert()(ids, torch.ones_like(ids), torch.zeros_like(ids))[0].numpy())
    return vectors


def some_texts(count: int) -> list[str]:
    """Texts of 0 to 29 words."""
    random = np.random.default_rng(0)
    return [" ".join(random.choice(WORDS, number % 30)) for number in range(count)]
