"""The operators of OpenVINO whose effect on rows is known. Of all others, nothing is."""

from __future__ import annotations

from collections.abc import Mapping

from cluster_serving.job.models.graph.network import Operator
from cluster_serving.job.models.graph.openvino import along, elementwise, layout, products

OPERATORS: Mapping[str, Operator] = {
    **elementwise.OPERATORS,
    **products.OPERATORS,
    **along.OPERATORS,
    **layout.OPERATORS,
}
"""Name of an operator → what it does, for all its versions up to opset16 that the rules do not refuse."""
