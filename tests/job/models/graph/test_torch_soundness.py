"""What a graph of PyTorch proves or refutes is so: random programs, computed by PyTorch."""

from __future__ import annotations

import operator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import fx

from cluster_serving.job.models.graph.torch.reader import read
from cluster_serving.job.models.graph.torch.script import reader as script
from cluster_serving.job.models.graph.walk import follow
from tests.job.models.graph.test_soundness import SIZES, check_dependence, check_rows

GRAPHS = 50
SEEDS = 6
aten = torch.ops.aten


class Maker:
    """A random program of one input `x`, whose records share sizes with other axes by chance."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.module = torch.nn.Module()
        self.graph = fx.Graph()
        self.last = self.input = self.graph.placeholder("x")
        self.values = {self.last: torch.rand(5, *SIZES)}
        self.earlier = [self.last]
        self.batch = self.node(aten.sym_size.int, self.last, 0)

    @property
    def shape(self):
        return self.values[self.last].shape

    def node(self, target, *args, **kwargs):
        value = target(*fx.map_arg(args, self.values.get), **fx.map_arg(kwargs, self.values.get))
        node = self.graph.call_function(target, args, kwargs)
        node.meta["val"] = self.values[node] = value
        return node

    def constant(self, tensor):
        name = f"c{len(self.values)}"
        setattr(self.module, name, tensor)
        node = self.graph.get_attr(name)
        node.meta["val"] = self.values[node] = tensor
        return node

    def numbers(self, *shape):
        return self.constant(torch.from_numpy(self.rng.normal(0, 1, shape).astype("f4")))

    def one_of(self, *items):
        return items[self.rng.integers(len(items))]

    def axis(self, least=0):
        rank = max(1, len(self.shape) + least)
        return int(self.rng.integers(-rank, rank))

    def add(self):
        step = getattr(self, str(self.rng.choice([name for name in dir(self) if name.startswith("_a_")])))
        try:
            found = step(self.last)
        except (RuntimeError, LookupError, ValueError):
            return
        if isinstance(self.values[found], torch.Tensor) and self.values[found].is_floating_point():
            self.last = found
            self.earlier.append(found)

    def _a_map(self, x):
        return self.node(self.one_of(aten.relu.default, aten.tanh.default, aten.abs.default, aten.sin.default), x)

    def _a_write(self, x):
        """Write to a tensor that is read again, or not."""
        return self.node(self.one_of(aten.relu_.default, aten.sin_.default), self.one_of(x, x, *self.earlier))

    def _a_write_to_part(self, x):
        part = self.node(self.one_of(aten.select.int, aten.slice.Tensor), x, self.axis(), int(self.rng.integers(2)))
        self.node(self.one_of(aten.mul_.Tensor, aten.add_.Tensor), part, self.one_of(2.0, self.numbers(1)))
        return x

    def _a_weights(self, x):
        target = self.one_of(aten.add.Tensor, aten.mul.Tensor, aten.sub.Tensor)
        return self.node(target, x, self.one_of(2.0, 0.5, self.numbers(self.one_of(1, 4, 6))))

    def _a_earlier(self, x):
        other = self.one_of(*self.earlier)
        # A difference of equal numbers is none.
        target = aten.add.Tensor if other is x else self.one_of(aten.add.Tensor, aten.mul.Tensor, aten.sub.Tensor)
        return self.node(target, x, other)

    def _a_reduce(self, x):
        target = self.one_of(aten.mean.dim, aten.amax.default, aten.sum.dim_IntList, aten.logsumexp.default)
        return self.node(target, x, [self.axis()], bool(self.rng.integers(2)))

    def _a_reduce_all(self, x):
        return self.node(self.one_of(aten.mean.default, aten.max.default), x)

    def _a_greatest(self, x):
        found = self.node(self.one_of(aten.max.dim, aten.median.dim), x, self.axis(), bool(self.rng.integers(2)))
        return self.cast(self.node(operator.getitem, found, int(self.rng.integers(2))))

    def cast(self, x):
        return self.node(aten.to.dtype, x, torch.float32)

    def _a_place(self, x):
        return self.cast(self.node(aten.argmax.default, x, self.one_of(self.axis(), None), bool(self.rng.integers(2))))

    def _a_sort(self, x):
        found = self.node(aten.sort.default, x, self.axis())
        return self.cast(self.node(operator.getitem, found, int(self.rng.integers(2))))

    def _a_along(self, x):
        target = self.one_of(aten.softmax.int, aten.cumsum.default, aten.log_softmax.int, aten.logcumsumexp.default)
        return self.node(target, x, self.axis())

    def _a_turn(self, x):
        if self.rng.integers(2):
            return self.node(aten.roll.default, x, [1], [self.axis()])
        return self.node(aten.flip.default, x, [self.axis()])

    def _a_permute(self, x):
        return self.node(aten.permute.default, x, [int(at) for at in self.rng.permutation(len(self.shape))])

    def _a_transpose(self, x):
        return self.node(aten.transpose.int, x, self.axis(), self.axis())

    def _a_view(self, x):
        b = self.batch
        some = self.node(operator.mul, b, self.one_of(2, 3, 4))
        shapes = (
            [b, -1], [-1, 4], [-1, 6], [3, -1], [b, 3, -1], [-1, 3, 4, 6], [b, 4, -1], [12, -1], [1, -1], [-1],
            [some, -1], [-1, some], [-1, b], [3, b, -1], [4, b, 6, -1], [b, 2, 2, -1],
        )  # fmt: skip
        return self.node(aten.reshape.default, x, self.one_of(*shapes))

    def _a_flatten(self, x):
        return self.node(aten.flatten.using_ints, x, self.axis(), self.axis())

    def _a_squeeze(self, x):
        return self.node(aten.squeeze.dim, x, self.axis())

    def _a_unsqueeze(self, x):
        return self.node(aten.unsqueeze.default, x, self.axis(1))

    def _a_linear(self, x):
        return self.node(aten.linear.default, x, self.numbers(self.one_of(3, 4, 6), self.shape[-1]))

    def _a_matmul(self, x):
        size = self.one_of(3, 4, 6)
        return self.node(aten.matmul.default, x, self.numbers(size, size))

    def _a_similarity(self, x):
        return self.node(aten.matmul.default, x, self.node(aten.transpose.int, x, -1, -2))

    def _a_attention(self, x):
        return self.node(aten.scaled_dot_product_attention.default, x, x, x, is_causal=bool(self.rng.integers(2)))

    def _a_slice(self, x):
        start, end = sorted(int(at) for at in self.rng.integers(-1, 4, 2))
        return self.node(
            aten.slice.Tensor, x, self.axis(), start, self.one_of(end + 1, None, 2**63 - 1, -1, self.batch)
        )

    def _a_select(self, x):
        return self.node(aten.select.int, x, self.axis(), self.one_of(0, -1, 1))

    def _a_index(self, x):
        places = self.constant(torch.tensor(self.one_of([0], [0, 1], [[1, 0], [0, 0]])))
        return self.node(aten.index.Tensor, x, [None] * int(self.rng.integers(len(self.shape))) + [places])

    def _a_mask(self, x):
        mask = self.node(aten.gt.Scalar, x, 0.3)
        return self.node(aten.index.Tensor, x, [mask])

    def _a_look_up(self, x):
        places = self.node(aten.to.dtype, self.node(aten.clamp.default, x, 0, 2), torch.int64)
        return self.node(aten.embedding.default, self.numbers(3, 2), places)

    def _a_gather(self, x):
        places = self.node(aten.to.dtype, self.node(aten.clamp.default, x, 0, 2), torch.int64)
        return self.node(aten.gather.default, x, self.axis(), places)

    def _a_scatter(self, x):
        places = self.node(aten.to.dtype, self.node(aten.clamp.default, x, 0, 2), torch.int64)
        return self.node(aten.scatter_add.default, x, self.axis(), places, x)

    def _a_cat(self, x):
        return self.node(aten.cat.default, [x, self.one_of(x, self.earlier[-1], *self.earlier)], self.axis())

    def _a_stack(self, x):
        return self.node(aten.stack.default, [x, self.one_of(x, *self.earlier)], self.axis(1))

    def _a_split(self, x):
        target, size = self.one_of((aten.split.Tensor, 2), (aten.chunk.default, 2), (aten.chunk.default, 3))
        return self.node(operator.getitem, self.node(target, x, size, self.axis()), self.one_of(0, 1))

    def _a_unbind(self, x):
        return self.node(operator.getitem, self.node(aten.unbind.int, x, self.axis()), self.one_of(0, 1))

    def _a_repeat(self, x):
        times = [int(at) for at in self.rng.integers(1, 3, len(self.shape) + int(self.rng.integers(2)))]
        return self.node(aten.repeat.default, x, times)

    def _a_repeat_each(self, x):
        return self.node(aten.repeat_interleave.self_int, x, 2, self.axis())

    def _a_expand(self, x):
        return self.node(aten.expand.default, x, [self.one_of(2, self.batch), *[-1] * len(self.shape)])

    def _a_token(self, x):
        """Put the same vector in front of all records."""
        shape = [1, *self.shape[1:]]
        same = self.node(aten.expand.default, self.numbers(*shape), [self.batch, *[-1] * (len(shape) - 1)])
        return self.node(aten.cat.default, [same, x], self.axis())

    def _a_pad(self, x):
        pads = [int(at) for at in self.rng.integers(-1, 2, 2 * int(self.rng.integers(1, len(self.shape) + 1)))]
        return self.node(aten.constant_pad_nd.default, x, pads)

    def _a_normalize(self, x):
        count = int(self.rng.integers(1, len(self.shape) + 1))
        if count == len(self.shape):
            return self.node(aten.layer_norm.default, x, [*self.shape])
        return self.node(aten.layer_norm.default, x, [*self.shape[-count:]])

    def _a_normalize_batch(self, x):
        count = self.shape[1]
        weights = [self.constant(torch.rand(count) + 0.5) for _ in range(4)]
        return self.node(aten.batch_norm.default, x, *weights, bool(self.rng.integers(2)), 0.1, 1e-5, False)

    def _a_normalize_groups(self, x):
        return self.node(aten.group_norm.default, x, 1)

    def _a_convolve(self, x):
        channels, kernel = self.shape[1 if self.rng.integers(2) else 0], (3,) * (len(self.shape) - 2)
        target = {1: aten.conv1d.default, 2: aten.conv2d.default}[len(kernel)]
        return self.node(target, x, self.numbers(4, channels, *kernel), None, [1], [1])

    def _a_pool(self, x):
        return self.node(self.one_of(aten.max_pool2d.default, aten.avg_pool2d.default), x, [2, 2])

    def _a_pool_to(self, x):
        return self.node(aten.adaptive_avg_pool2d.default, x, [1, 2])

    def _a_upsample(self, x):
        return self.node(aten.upsample_nearest2d.vec, x, None, [2.0, 2.0])

    def _a_recur(self, x):
        size, first = self.shape[-1], bool(self.rng.integers(2))
        if len(self.shape) != 3 or self.shape[0 if first else 1] != len(self.values[self.input]):
            # Other states end the process.
            raise ValueError
        weights = [self.numbers(4 * 3, size), self.numbers(4 * 3, 3)]
        state = self.node(aten.zeros.default, [1, self.batch, 3])
        found = self.node(aten.lstm.input, x, [state, state], weights, False, 1, 0.0, False, False, first)
        return self.node(operator.getitem, found, self.one_of(0, 1, 2))

    def _a_sum_over_names(self, x):
        letters = "abcdefgh"[: len(self.shape)]
        kept = "".join(self.rng.permutation([*letters])[: max(1, len(letters) - 1)])
        return self.node(aten.einsum.default, f"{letters}->{kept}", [x])

    def _a_triangle(self, x):
        return self.node(aten.tril.default, x)

    def _a_choose(self, x):
        return self.node(aten.where.self, self.node(aten.gt.Scalar, x, 0.2), x, self.one_of(*self.earlier))

    def _a_number_of_records(self, x):
        return self.node(aten.mul.Tensor, x, self.batch)

    def _a_positions(self, x):
        return self.node(aten.add.Tensor, x, self.node(aten.arange.default, self.one_of(self.batch, self.shape[-1])))

    def program(self):
        self.graph.output((self.last,))
        return fx.GraphModule(self.module, self.graph)


class Session:
    """A program that is called as a session of ONNX Runtime."""

    def __init__(self, program: fx.GraphModule) -> None:
        self.program = program

    def run(self, names, feeds):
        with torch.inference_mode():
            return [self.program(torch.from_numpy(feeds["x"].copy()))[0].clone().numpy()]


def programs(rng, seed):
    """Yield programs of up to six random operators."""
    torch.manual_seed(seed)
    for _ in range(GRAPHS):
        maker = Maker(rng)
        for _ in range(int(rng.integers(1, 7))):
            maker.add()
        yield maker.program()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_programs_prove_and_refute_is_true(seed):
    rng = np.random.default_rng(seed)
    proved = refuted = 0
    for program in programs(rng, seed):
        finding = follow(read(program, {"x": ["s", *SIZES]}, ["y"]), {"x": 0})["y"]
        if finding.axis is not None:
            proved += check_rows(Session(program), finding.axis, rng)
        if finding.mixed_by:
            refuted += check_dependence(Session(program), rng)
    assert proved > 5
    assert refuted > 1


class Script(Session):
    """A TorchScript module that is called as a session of ONNX Runtime."""

    def run(self, names, feeds):
        with torch.inference_mode():
            return [self.program(torch.from_numpy(feeds["x"].copy())).clone().numpy()]


def traced(program):
    """Return a program as a traced module, whose sizes are those of its tensors; None if PyTorch cannot trace it."""
    for node in program.graph.nodes:
        if node.target is aten.sym_size.int:
            node.op, node.target = "call_method", "size"
        elif node.op == "output":
            node.args = (node.args[0][0],)
    program.recompile()
    try:
        return torch.jit.freeze(torch.jit.trace(program.eval(), torch.rand(5, *SIZES), check_trace=False))
    except RuntimeError:
        return None


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("seed", range(2))
def test_what_traces_prove_and_refute_is_true(seed):
    rng = np.random.default_rng(seed)
    proved = refuted = 0
    for program in programs(rng, seed):
        module = traced(program)
        if module is None:
            continue
        graph = script.read(module, {"x": "float32"})
        graph = replace(graph, inputs=dict.fromkeys(graph.inputs, (None, *SIZES)))
        finding = follow(graph, {"x": 0})["output"]
        if finding.axis is not None:
            proved += check_rows(Script(module), finding.axis, rng)
        if finding.mixed_by:
            refuted += check_dependence(Script(module), rng)
    assert proved > 5
    assert refuted > 1
