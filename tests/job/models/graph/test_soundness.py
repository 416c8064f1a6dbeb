"""What a graph proves or refutes is so: random graphs, computed by ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from cluster_serving.job.models.graph.onnx.reader import read
from cluster_serving.job.models.graph.walk import follow

SIZES = (3, 4, 6)
"""Sizes of a record; the batch is in front."""
GRAPHS = 60
SEEDS = 10


class Maker:
    """A random graph of one input `x`, whose records share sizes with other axes by chance."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.last = "x"
        self.rank = 1 + len(SIZES)
        self.earlier = ["x"]

    def constant(self, value, dtype=np.int64):
        name = f"c{len(self.weights)}"
        self.weights[name] = np.array(value, dtype)
        return name

    def node(self, kind, *inputs, **attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [*inputs], [name], **attributes))
        return name

    def add(self) -> None:
        step = getattr(self, f"_{self.rng.choice([name[1:] for name in dir(self) if name.startswith('_a_')])}")
        self.last = step(self.last)
        self.earlier.append(self.last)

    def axis(self) -> int:
        return int(self.rng.integers(-self.rank, self.rank))

    def numbers(self, *shape):
        return self.constant(self.rng.normal(0, 1, shape), np.float32)

    def _a_map(self, x):
        return self.node(str(self.rng.choice(["Relu", "Tanh", "Sin", "Abs", "Sign"])), x)

    def _a_weights(self, x):
        return self.node(str(self.rng.choice(["Add", "Mul", "Sub"])), x, self.numbers(int(self.rng.choice([1, 4, 6]))))

    def _a_earlier(self, x):
        other = str(self.rng.choice(self.earlier))
        # A difference of equal numbers is none.
        return self.node("Add" if other == x else str(self.rng.choice(["Add", "Mul", "Sub"])), x, other)

    def _a_reduce(self, x):
        keep = int(self.rng.integers(2))
        axis = self.axis()
        self.rank -= 1 - keep
        return self.node(str(self.rng.choice(["ReduceMean", "ReduceMax"])), x, axes=[axis], keepdims=keep)

    def _a_softmax(self, x):
        return self.node("Softmax", x, axis=self.axis())

    def _a_sums(self, x):
        return self.node("CumSum", x, self.constant(self.axis()))

    def _a_transpose(self, x):
        return self.node("Transpose", x, perm=[int(at) for at in self.rng.permutation(self.rank)])

    def _a_reshape(self, x):
        shapes = ([0, -1], [-1, 4], [-1, 6], [3, -1], [0, 0, -1], [-1, 3, 4, 6], [0, 4, -1], [12, -1], [1, -1], [-1])
        shape = shapes[self.rng.integers(len(shapes))]
        self.rank = len(shape)
        return self.node("Reshape", x, self.constant(shape))

    def _a_flatten(self, x):
        axis = int(self.rng.integers(self.rank + 1))
        self.rank = 2
        return self.node("Flatten", x, axis=axis)

    def _a_as_before(self, x):
        """A shape that is made of the batch, as exporters make it."""
        size = self.node("Gather", self.node("Shape", "x"), self.constant([0]))
        parts = [size, self.constant([int(self.rng.choice([2, 3, 4])), -1])]
        self.rank = 3
        return self.node("Reshape", x, self.node("Concat", *parts[:: int(self.rng.choice([1, -1]))], axis=0))

    def _a_product(self, x):
        size = int(self.rng.choice([3, 4, 6]))
        return self.node("MatMul", x, self.numbers(size, size))

    def _a_similarity(self, x):
        order = [*range(self.rank)]
        order[-2:] = order[-2:][::-1]
        return self.node("MatMul", x, self.node("Transpose", x, perm=order))

    def _a_slice(self, x):
        start, end = sorted(int(at) for at in self.rng.integers(0, 4, 2))
        bounds = [[start], [end + 1 if self.rng.integers(2) else 2**31 - 1], [self.axis()]]
        return self.node("Slice", x, *map(self.constant, bounds))

    def _a_gather(self, x):
        return self.node("Gather", x, self.constant([0, int(self.rng.integers(2))]), axis=self.axis())

    def _a_pick(self, x):
        return self.node("Gather", x, self.constant([0]), axis=self.axis())

    def _a_concat(self, x):
        return self.node("Concat", x, str(self.rng.choice([x, self.earlier[-1]])), axis=self.axis())

    def _a_unsqueeze(self, x):
        self.rank += 1
        return self.node("Unsqueeze", x, self.constant([self.axis()]))

    def _a_normalize(self, x):
        return self.node("LpNormalization", x, axis=self.axis())

    def _a_tile(self, x):
        return self.node("Tile", x, self.constant(self.rng.integers(1, 3, self.rank)))

    def _a_argmax(self, x):
        found = self.node("ArgMax", x, axis=self.axis(), keepdims=1)
        return self.node("Cast", found, to=onnx.TensorProto.FLOAT)

    def _a_einsum(self, x):
        letters = "abcdef"[: self.rank]
        kept = "".join(self.rng.permutation([*letters])[: max(1, self.rank - 1)])
        self.rank = len(kept)
        return self.node("Einsum", x, equation=f"{letters}->{kept}")

    def model(self) -> bytes:
        port = onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes,
            "random",
            [helper.make_tensor_value_info("x", port, ["n", *SIZES])],
            [helper.make_tensor_value_info(self.last, port, None)],
            [onnx.numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        imports = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def made(rng):
    """Return a random model, the name of its output, and a session; None if ONNX Runtime refuses it."""
    maker = Maker(rng)
    for _ in range(int(rng.integers(1, 7))):
        if maker.rank:
            maker.add()
    content = maker.model()
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = 1
    try:
        return content, maker.last, onnxruntime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])
    except Exception:
        return None


def computed(session, x):
    """Return the output of a call; None if there is none."""
    try:
        return session.run(None, {"x": x})[0]
    except Exception:
        return None


def check_rows(session, axis, rng):
    """Check that each row is that of its record alone, but for rounding."""
    x = rng.normal(0, 1, (5, *SIZES)).astype(np.float32)
    together = computed(session, x)
    if together is None:
        return False
    assert together.shape[axis] == len(x)
    for place in range(len(x)):
        alone = computed(session, x[place : place + 1])
        np.testing.assert_allclose(np.take(together, [place], axis), alone, rtol=1e-3, atol=1e-4)
    return True


def check_dependence(session, rng):
    """Check that rows change with a record at another place than theirs, on whatever axis they are."""
    x = rng.normal(0, 1, (5, *SIZES)).astype(np.float32)
    before = computed(session, x)
    if before is None or not before.size:
        return False
    axes = {axis for axis, size in enumerate(before.shape) if size == len(x)}
    # A vector that is divided by its length has none; what is no number shows that it was computed from others.
    for changes in (100 * rng.normal(0, 1, x.shape), np.full_like(x, np.nan)):
        for place in range(len(x)):
            other = x.copy()
            other[place] = changes[place]
            moved = computed(session, other) != before
            axes -= {axis for axis in axes if np.delete(moved, place, axis).any()}
    assert not axes
    return True


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_graphs_prove_and_refute_is_true(seed):
    rng = np.random.default_rng(seed)
    proved = refuted = 0
    for _ in range(GRAPHS):
        model = made(rng)
        if model is None:
            continue
        content, output, session = model
        finding = follow(read(content, {"y": output}), {"x": 0})["y"]
        if finding.axis is not None:
            proved += check_rows(session, finding.axis, rng)
        if finding.mixed_by:
            refuted += check_dependence(session, rng)
    assert proved > 3
    assert refuted > 1
