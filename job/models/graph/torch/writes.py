"""Operators that write to a tensor, as those that return another one, where nothing else reads what was there."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from cluster_serving.job.models.graph.network import Node
from cluster_serving.job.models.graph.torch.table import NUMBERS, OPERATORS

_IN_PLACE = re.compile(r"(aten\.\w+)_(\.\w+)")

_NAMES = (
    "_convolution _native_batch_norm_legit_no_training _softmax adaptive_avg_pool2d add.Scalar add.Tensor addmm all "
    "all.dim amax amin any any.dim arange arange.start arange.start_step avg_pool2d baddbmm batch_norm bmm cat clone "
    "conv1d conv1d.padding conv2d conv2d.padding conv3d conv_transpose2d.input convolution dim div.Scalar div.Tensor "
    "elu embedding exp full gelu group_norm hardsigmoid hardswish layer_norm leaky_relu lift_fresh_copy linear "
    "log_softmax.int matmul max_pool2d mean.dim mish mm mul.Scalar mul.Tensor native_layer_norm new_full new_ones "
    "new_zeros numel ones ones_like pow.Tensor_Scalar relu rsub.Scalar scaled_dot_product_attention sigmoid silu size "
    "size.int softmax.int softplus stack sub.Scalar sub.Tensor sum.dim_IntList sym_numel sym_size.int tanh where.self "
    "zeros zeros_like"
)
_PASSED = {f"{NUMBERS}{name}" for name in ("if", "loop", "carried", "getitem")}
"""Operators that return one of their inputs, which may be a tensor."""

_FRESH = {
    *(f"aten.{name}{'' if '.' in name else '.default'}" for name in _NAMES.split()),
    *(name for name in OPERATORS if name.startswith(NUMBERS) and name not in _PASSED),
}
"""Operators whose outputs have memory of their own. Those of all others may be in the memory of any input."""


@dataclass(frozen=True, slots=True)
class Step:
    """A node of a program.

    Attributes:
        node: The node.
        written: Names of the tensors to which it writes.
    """

    node: Node
    written: Sequence[str] = ()


def functional(
    steps: Sequence[Step], memory: Mapping[str, Hashable], outputs: Collection[str], fresh: Collection[str] = ()
) -> tuple[list[Node], set[str]]:
    """Return nodes that write nothing, and the names of tensors about which nothing can be said.

    Args:
        steps: The nodes, in order.
        memory: Name of each input and constant → its memory; what is written there is read in later calls.
        outputs: Names of the outputs.
        fresh: Further operators whose outputs have memory of their own.
    """
    groups = _Groups()
    for name, place in memory.items():
        groups.join(name, place)
    last = {name: at for at, step in enumerate(steps) for name in step.node.inputs}
    last |= dict.fromkeys(outputs, len(steps))
    kept = set(memory.values())
    spoiled: list[str] = []
    nodes = []
    for at, step in enumerate(steps):
        node = step.node
        if not step.written:
            if node.kind in _FRESH or node.kind in fresh:
                for name in node.outputs:
                    groups.add(name)
            else:
                groups.join(*node.inputs, *node.outputs)
            nodes.append(node)
            continue
        (first, *rest) = step.written
        match = _IN_PLACE.fullmatch(node.kind)
        kind = f"{match[1]}{match[2]}" if match else ""
        group = groups.of(first)
        is_last = all(last.get(name, at) <= at for name in group if isinstance(name, str))
        if rest or kept & group or not is_last or kind not in OPERATORS or node.inputs[0] != first:
            spoiled += step.written
            groups.join(*node.inputs, *node.outputs)
        else:
            groups.join(first, *node.outputs)
        nodes.append(replace(node, kind=kind))
        if spoiled and spoiled[-1] in step.written:
            # What is written may have an effect wherever this memory is read.
            names = sorted(name for name in groups.of(first) if isinstance(name, str))
            nodes.append(Node("", node.name, [*node.inputs, *names], names))
    unknown = {name for one in spoiled for name in groups.of(one) if isinstance(name, str)}
    return [replace(node, kind="") if unknown & {*node.outputs} else node for node in nodes], unknown


class _Groups:
    """Tensors that may be in the same memory."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, set[Hashable]] = {}

    def add(self, name: Hashable) -> set[Hashable]:
        """Add a tensor, if it is not there; return its group."""
        return self._groups.setdefault(name, {name})

    def join(self, *names: Hashable) -> None:
        """Note that these tensors may be in the same memory."""
        groups = {id(group): group for group in map(self.add, names)}
        # The largest one stays, so that a long program does not move each name each time.
        kept, *others = sorted(groups.values(), key=len, reverse=True)
        for group in others:
            kept |= group
            self._groups.update(dict.fromkeys(group, kept))

    def of(self, name: Hashable) -> set[Hashable]:
        """Return the tensors that may be in the memory of this one."""
        return self._groups.get(name, {name})
