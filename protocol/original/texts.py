"""Rankings and rows as texts, which the original's servers write as results."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.original.floats import java_float


def ranking_text(ranking: Sequence[tuple[int, float]]) -> str:
    """Write a ranking as the original's server does: without a comma between the pairs."""
    pairs = (f"[{index},{java_float(value)}]" for index, value in ranking)
    return f"[{''.join(pairs)}]"


def ranking_json(ranking: Sequence[tuple[int, float]]) -> str:
    """Write a ranking as the original's server of 0.7 does: a JSON object, all of texts."""
    pairs = (f'"{index}":"{java_float(value)}"' for index, value in ranking)
    return f"{{{','.join(pairs)}}}"


def rows_text(output: Array) -> str:
    """Write the rows of `pickTopN` as the original's server does: without a comma between them."""
    rows = (f"[{','.join(map(java_float, row))}]" for row in output.tolist())
    return f"[{''.join(rows)}]"
