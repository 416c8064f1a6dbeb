"""Numbers of tokens, which a job counts for a request with the field `counted` (`entry.Entry`).

They are no outputs: the field `tokens` of the result has them, as JSON by name. If the outputs of several records are
in columns, so are the numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cluster_serving.protocol import columns
from cluster_serving.protocol.columns import EACH, Columns, Outcomes
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.results import Fields, Outputs

TOKENS = "tokens"
"""Field of a result."""

PROMPT, COMPLETION = "prompt_tokens", "completion_tokens"

TokenCounts = Mapping[str, int]
"""Number of tokens by name: `PROMPT`, `COMPLETION`, or both; empty if nothing counts them."""


def mark(fields: Mapping[str, str | bytes], *counts: TokenCounts) -> Mapping[str, str | bytes]:
    """Return the fields of a result with the counts of its record, if it has any."""
    return {**fields, TOKENS: json.dumps(counts[0])} if any(counts) else fields


def mark_columns(fields: dict[str, str | bytes], counts: Sequence[TokenCounts]) -> dict[str, str | bytes]:
    """Return the fields of a result in columns, with those counts that all its records have."""
    shared = [name for name in (counts[0] if counts else ()) if all(name in one for one in counts)]
    return fields | {TOKENS: json.dumps({name: [one[name] for one in counts] for name in shared})} if shared else fields


def read(fields: Fields) -> dict[str, Any]:
    """Return the counts in a result: a number by name, or a list of them if the outputs are in columns."""
    text = fields.get(TOKENS.encode())
    return json.loads(text) if text else {}


def as_outputs(outcomes: Outcomes, fields: Fields) -> Outcomes:
    """Return the outcomes of the records of a result with the counts as outputs; those of the model go before."""
    if isinstance(outcomes, Columns):
        counts: Mapping[str, Any] = {name: np.array(numbers) for name, numbers in read(fields).items()}
        return Columns({**counts, **outcomes.arrays})
    if EACH.encode() in fields:
        return [_beside(outcome, each) for each, outcome in zip(columns.results(fields), outcomes)]
    return [_beside(outcome, fields) for outcome in outcomes]


def _beside(outcome: Outputs | ServingError, fields: Fields) -> Outputs | ServingError:
    return {**arrays(read(fields)), **outcome} if isinstance(outcome, dict) else outcome


def arrays(counts: TokenCounts) -> dict[str, Any]:
    """Return the counts of a record as outputs."""
    return {name: np.asarray(number) for name, number in counts.items()}
