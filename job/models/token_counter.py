"""Numbers of tokens of a request and of its answer, for clients that want them counted (`protocol.token_counts`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from cluster_serving.protocol.token_counts import COMPLETION, PROMPT, TokenCounts

_MESSAGES, _TEXT, _REASON = "messages", "text", "finish_reason"


class TokenCounter:
    """Counts with the tokenizer of a model. A text that cannot be tokenized has no count, and fails nothing.

    Args:
        tokenizer: A `tokenizers.Tokenizer`, which cuts texts as those of the model are cut.
        most: Most characters of a text that is counted.
        before: The model computes it before each text, so it counts.
    """

    def __init__(self, tokenizer: Any, most: int, before: str = "") -> None:
        self._tokenizer, self._most, self._before = tokenizer, most, before

    def counts(self, wanted: bytes, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> TokenCounts:
        """Return the counts of a record, except those that the model's outputs have.

        Args:
            wanted: Names of the inputs that count as the prompt, as a JSON list.
            inputs: Inputs of the record. A prompt counts with the tokens that a tokenizer adds, such as `[CLS]`, up to
                the limit of the model. Of the input `messages`, which is JSON, the texts of all messages count.
            outputs: Its outputs. The output `text` counts, or else the only one beside `finish_reason`.
        """
        counts = {}
        with suppress(Exception):
            if PROMPT not in outputs and (prompts := [*_prompts(json.loads(wanted), inputs)]):
                counts[PROMPT] = sum(self._prompt(name, text) for name, text in prompts)
        with suppress(Exception):
            if COMPLETION not in outputs and (text := said(outputs)) is not None:
                counts[COMPLETION] = self._length(text, whole=True)
        return counts

    def _prompt(self, name: str, text: str) -> int:
        if name != _MESSAGES:
            return self._length(self._before + text, whole=False)
        return sum(self._length(part, whole=True) for part in _contents(json.loads(text)))

    def _length(self, text: str, whole: bool) -> int:
        most = self._most + len(self._before)
        if len(text) > most:
            raise ValueError(f"the text has more than {most} characters")
        encoding = self._tokenizer.encode(text, add_special_tokens=not whole)
        rest = encoding.overflowing if whole else ()
        return len(encoding.ids) + sum(len(more.ids) for more in rest)


def said(outputs: Mapping[str, Any]) -> str | None:
    """Return the text of outputs; None if they have several, or none."""
    texts = {name: value for name, value in _texts(outputs) if name != _REASON}
    return texts.get(_TEXT, next(iter(texts.values())) if len(texts) == 1 else None)


def _texts(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the single texts among values, which a model has as arrays, and a handler also as `str`."""
    for name, value in values.items():
        text = value.item() if isinstance(value, np.ndarray) and value.size == 1 else value
        if isinstance(text, str):
            yield name, text


def _prompts(names: list[str], inputs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    return ((name, text) for name, text in _texts(inputs) if name in names)


def _contents(messages: list[dict[str, Any]]) -> Iterator[str]:
    for message in messages:
        content = message.get("content") or ""
        parts = content if isinstance(content, list) else [{"text": content}]
        yield from (part["text"] for part in parts if isinstance(part.get("text"), str))
