"""The operators of ONNX whose effect on rows is known. Of all others, nothing is."""

from __future__ import annotations

from collections.abc import Mapping

from cluster_serving.job.models.graph.network import Operator
from cluster_serving.job.models.graph.onnx import (
    along,
    contributed,
    elementwise,
    layout,
    products,
    quantized,
    tabular,
)

OPERATORS: Mapping[str, Operator] = {
    **elementwise.OPERATORS,
    **products.OPERATORS,
    **along.OPERATORS,
    **layout.OPERATORS,
    **quantized.OPERATORS,
    **tabular.OPERATORS,
    **contributed.OPERATORS,
}
"""Name of an operator → what it does; see `Node.kind`."""
