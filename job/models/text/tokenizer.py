"""Tokenizers of Hugging Face: a `tokenizer.json` makes numbers of a text."""

import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster_serving.job.options import NO_TOKENIZER
from cluster_serving.protocol.errors import EngineMissing, InvalidInput, ModelError, RequestTooLarge

FILE = "tokenizer.json"

PAIR = "pair"
"""Value of the key `tokenizer`: two texts are tokenized together."""

REQUIREMENT = "cluster-serving[text]"
"""Requirement that installs the package `tokenizers`."""

_SETTINGS = "tokenizer_config.json"
# Tokenizers without a limit write such a number, 1e30 for instance.
NO_LIMIT = 1 << 24
_PADDING = ("[PAD]", "<pad>", "<|pad|>", "<|endoftext|>", "</s>")


def is_used(folder: Path, option: str) -> bool:
    """Return True if texts are tokenized for the model in a folder; `option` is the key `tokenizer`."""
    return option != NO_TOKENIZER and (folder / FILE).is_file()


def check(folder: Path) -> None:
    """Check that the package `tokenizers` is installed.

    Raises:
        EngineMissing: If it is not.
    """
    if importlib.util.find_spec("tokenizers") is None:
        raise EngineMissing(
            f"the model in {folder} has a {FILE}, and the Python package tokenizers is not installed: run pip install "
            f"'{REQUIREMENT}', or set tokenizer: none if clients send token ids"
        )


def load(folder: Path, max_tokens: int | None = None, model_limit: int | None = None) -> Any:
    """Return the `tokenizers.Tokenizer` of a folder, which truncates texts, does not pad them, and draws nothing.

    The limit is `max_tokens`, or else that of `tokenizer.json`, or else `model_max_length` of `tokenizer_config.json`;
    and never more than `model_limit`, the size of a model that takes no other.

    Raises:
        EngineMissing: If the package is not installed.
        ModelError: If the file cannot be read.
    """
    check(folder)
    # The threads of a slot compute; those of this package would be forked with the TaskManager, and warn.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from tokenizers import Tokenizer

    try:
        # From memory, as the file of an encrypted model is removed.
        tokenizer = Tokenizer.from_str((folder / FILE).read_text("utf8"))
    except Exception as error:
        raise ModelError(f"{folder / FILE} cannot be read: {error}") from error
    model = tokenizer.model
    if getattr(model, "dropout", None):
        # As in training, each call would draw other tokens of the same text.
        model.dropout = None
        tokenizer.model = model
    tokenizer.no_padding()
    own = tokenizer.truncation or {}
    limits = [max_tokens or own.get("max_length") or _configured_limit(folder), model_limit]
    if limit := min(filter(None, limits), default=None):
        try:
            tokenizer.enable_truncation(limit, strategy="longest_first", direction=own.get("direction", "right"))
        except Exception as error:
            raise ModelError(f"{folder / FILE} cannot truncate texts to {limit} tokens (maxTokens): {error}") from error
    return tokenizer


def padding_id(tokenizer: Any, folder: Path) -> int:
    """Return the id of the token that fills up a batch; masks hide it from the model."""
    named = _settings(folder).get("pad_token")
    text = named.get("content") if isinstance(named, dict) else named
    ids = [tokenizer.token_to_id(token) for token in (text, *_PADDING) if isinstance(token, str)]
    return next((found for found in ids if found is not None), 0)


def encode(tokenizer: Any, texts: Sequence[str], most: int, prompt: str = "", skipped: int = 0) -> Any:
    """Return the `tokenizers.Encoding` of a text of a request, or of a pair, of at most so many characters each.

    `prompt` stands before the first. More than `skipped` tokens are needed.

    Raises:
        InvalidInput: If a text cannot be tokenized, or has no tokens.
        RequestTooLarge: If it has too many characters.
    """
    longest = max(map(len, texts))
    if longest > most:
        raise RequestTooLarge(f"the text has {longest} characters; at most {most} are taken (maxTextLength)")
    try:
        encoding = tokenizer.encode(prompt + texts[0], *texts[1:])
    except Exception as error:
        raise InvalidInput(f"the text cannot be tokenized: {error}") from None
    if len(encoding.ids) <= skipped:
        beside = " beside those of the prompt" if skipped else ""
        raise InvalidInput(f"the text {texts[0][:40]!r} has no tokens{beside}")
    return encoding


def prompt_tokens(tokenizer: Any, prompt: str) -> int:
    """Return the number of tokens of a prompt, without a special one at its end, as sentence-transformers counts."""
    if not prompt:
        return 0
    encoding = tokenizer.encode(prompt)
    return len(encoding.ids) - int(bool(encoding.ids) and encoding.special_tokens_mask[-1])


def _configured_limit(folder: Path) -> int | None:
    limit = _settings(folder).get("model_max_length")
    return int(limit) if isinstance(limit, int | float) and 0 < limit < NO_LIMIT else None


def _settings(folder: Path) -> dict[str, Any]:
    try:
        settings = json.loads((folder / _SETTINGS).read_text("utf8"))
    except (OSError, ValueError):
        # The file is not needed.
        return {}
    return settings if isinstance(settings, dict) else {}
