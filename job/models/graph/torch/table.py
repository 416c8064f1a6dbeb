"""The operators of PyTorch whose effect on rows is known. Of all others, nothing is."""

from __future__ import annotations

from collections.abc import Mapping

from cluster_serving.job.models.graph.network import Operator
from cluster_serving.job.models.graph.torch import along, control, elementwise, layout, pieces, products

NUMBERS = "operator."
"""Begin of the names of operators of Python, on numbers of elements."""

OPERATORS: Mapping[str, Operator] = {
    name if name.startswith(NUMBERS) else f"aten.{name}": operator
    for part in (elementwise, along, control, layout, pieces, products)
    for name, operator in part.OPERATORS.items()
}
"""Name of an operator → what it does; see `Node.kind`."""
