"""Models whose batch is at any axis, or nowhere, in every engine; each knows the answer of a record alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.lazy import Lazy
from tests.support.payloads import model_zoo

tf = Lazy("tensorflow")

SQUEEZED = "squeezed"
"""An output that has the batch in front, and loses it in a batch of one."""


@dataclass(frozen=True)
class Case:
    """A model.

    Attributes:
        inputs: Input → axis of the batch or None, shape of a record, and dtype.
        outputs: Output → axis of the batch, None, or `SQUEEZED`.
        save: Writes the model into a folder.
        call: Returns the outputs for a folder and the model's own tensors by name, by the engine's own library.
        shares: Records may share a call.
        options: Options of the model.
        batch: Smallest batch that the model takes.
    """

    inputs: dict[str, tuple[int | None, tuple[int, ...], str]]
    outputs: dict[str, int | str | None]
    save: Callable[[Path], None]
    call: Callable[[Path, dict[str, np.ndarray]], list[np.ndarray]]
    shares: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    batch: int = 1

    def record(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return the inputs of a random record."""
        record = {}
        for name, (_, shape, dtype) in self.inputs.items():
            values = rng.normal(0, 1, shape) if dtype == "float32" else rng.integers(0, 9, shape)
            record[name] = np.asarray(values, dtype)
        return record

    def alone(self, folder: Path, record: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Return the outputs for a record, as the engine's own library computes it alone."""
        feeds = {}
        for name, value in record.items():
            axis = self.inputs[name][0]
            feeds[name] = value if axis is None else np.stack([value] * self.batch, axis)
        return [
            np.asarray(array) if axis in (None, SQUEEZED) else np.take(array, 0, axis)
            for array, axis in zip(self.call(folder, feeds), self.outputs.values(), strict=True)
        ]


def cases() -> dict[str, Case]:
    """Return all cases by name."""
    return {**onnx_cases(), **openvino_cases(), **torch_cases(), **exported_cases(), **tensorflow_cases()}


def _weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(0, 0.5, shape).astype(np.float32)


VECTOR = {"x": (0, (4,), "float32")}
IMAGE = {"x": (0, (3, 6, 5), "float32")}


def _onnx(inputs, outputs, nodes, ins, outs, weights=None, **rest: Any) -> Case:
    return Case(
        inputs, outputs, lambda folder: model_zoo.save_onnx(folder, nodes(), ins, outs, weights), _run_onnx, **rest
    )


@cache
def _session(path: str) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def _run_onnx(folder: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return _session(str(folder / "model.onnx")).run(None, feeds)


def onnx_cases() -> dict[str, Case]:
    """Return models that ONNX Runtime computes."""
    from onnx import helper

    node = helper.make_node
    f = "FLOAT"
    gru = {"w": _weights(2, 24, 4), "r": _weights(2, 24, 8), "zero": np.array([0])}
    one_way = {"w": _weights(1, 24, 4), "r": _weights(1, 24, 8)}

    def gru_nodes():
        return [
            node("Unsqueeze", ["x", "zero"], ["steps"]),
            node("GRU", ["steps", "w", "r", "", "", "state"], ["", "new"], hidden_size=8, direction="bidirectional"),
            node("ReduceSum", ["new", "zero"], ["y"], keepdims=0),
        ]

    def over_time():
        return [node("GRU", ["x", "w", "r"], ["steps"], hidden_size=8), node("Squeeze", ["steps", "one"], ["y"])]

    def rows():
        return [
            node("Greater", ["x", "limit"], ["bright"]),
            node("NonZero", ["bright"], ["found"]),
            node("Transpose", ["found"], ["rows"], perm=[1, 0]),
            node("Slice", ["rows", "from", "to", "last"], ["y"]),
        ]

    corners = {
        "limit": np.array(1.2, np.float32),
        "from": np.array([1]),
        "to": np.array([4]),
        "last": np.array([1]),
    }
    state = {"x": (0, (4,), "float32"), "state": (1, (2, 8), "float32")}
    found = {}
    for name, size in (("n", "n"), ("unnamed", None), ("symbols", "rows")):
        found[f"gru state, {name}"] = _onnx(
            state, {"y": 0, "new": 1}, gru_nodes,
            {"x": (f, [size, 4]), "state": (f, [2, size, 8])}, {"y": (f, [size, 8]), "new": (f, [2, size, 8])}, gru,
        )  # fmt: skip
        found[f"time first, {name}"] = _onnx(
            {"x": (1, (5, 4), "float32")}, {"y": 1}, over_time,
            {"x": (f, [None, size, 4])}, {"y": (f, [None, size, 8])}, {**one_way, "one": np.array([1])},
        )  # fmt: skip
        found[f"detector, {name}"] = _onnx(
            IMAGE, {"y": None}, rows, {"x": (f, [size, 3, 6, 5])}, {"y": ("INT64", ["found", 3])}, corners, shares=False
        )
        found[f"two inputs, {name}"] = _onnx(
            {"x": (0, (4,), "float32"), "z": (0, (4,), "float32")}, {"y": 0},
            lambda: [node("Sub", ["x", "z"], ["y"])],
            {"x": (f, [size, 4]), "z": (f, [size and f"{size}_1", 4])}, {"y": (f, [size and "other", 4])},
        )  # fmt: skip
    found["detector, free size"] = _onnx(
        IMAGE, {"y": None}, rows, {"x": (f, ["n", 3, "h", "w"])}, {"y": ("INT64", ["found", 3])}, corners, shares=False
    )
    found["detector, batch of 1"] = _onnx(
        IMAGE, {"y": None}, rows, {"x": (f, [1, 3, 6, 5])}, {"y": ("INT64", ["found", 3])}, corners, shares=False
    )
    found["detector beside a score"] = _onnx(
        IMAGE, {"y": None, "score": 0},
        lambda: [*rows(), node("ReduceMean", ["x"], ["score"], axes=[1, 2, 3], keepdims=0)],
        {"x": (f, ["n", 3, 6, 5])}, {"y": ("INT64", ["k", 3]), "score": (f, ["n"])}, corners, shares=False,
    )  # fmt: skip
    found["batch of 1"] = _onnx(
        VECTOR, {"y": 0}, lambda: [node("Sin", ["x"], ["y"])], {"x": (f, [1, 4])}, {"y": (f, [1, 4])}, shares=False
    )
    found["batch of 3"] = _onnx(
        VECTOR, {"y": 0}, lambda: [node("Sin", ["x"], ["y"])], {"x": (f, [3, 4])}, {"y": (f, [3, 4])}, batch=3
    )
    found["a table of 3 rows"] = _onnx(
        {"x": (None, (3, 4), "float32")}, {"y": None}, lambda: [node("Softmax", ["x"], ["y"], axis=0)],
        {"x": (f, [3, 4])}, {"y": (f, [3, 4])}, shares=False,
    )  # fmt: skip
    found["threshold"] = _onnx(
        {"x": (0, (4,), "float32"), "t": (None, (), "float32")}, {"y": 0}, lambda: [node("Mul", ["x", "t"], ["y"])],
        {"x": (f, ["n", 4]), "t": (f, [])}, {"y": (f, ["n", 4])}, shares=False,
    )  # fmt: skip
    found["mean"] = _onnx(
        {"x": (0, (4,), "float32"), "mean": (None, (4,), "float32")}, {"y": 0},
        lambda: [node("Sub", ["x", "mean"], ["y"])],
        {"x": (f, ["n", 4]), "mean": (f, [4])}, {"y": (f, ["n", 4])}, shares=False,
    )  # fmt: skip
    found["transposed"] = _onnx(
        VECTOR, {"y": 1}, lambda: [node("Transpose", ["x"], ["y"], perm=[1, 0])],
        {"x": (f, ["n", 4])}, {"y": (f, [4, "n"])},
    )  # fmt: skip
    found["squeezed"] = _onnx(
        {"x": (0, (1, 4), "float32")}, {"y": SQUEEZED}, lambda: [node("Squeeze", ["x"], ["y"])],
        {"x": (f, ["n", 1, 4])}, {"y": (f, ["?", "?"])},
    )  # fmt: skip
    found["softmax over the batch"] = _onnx(
        VECTOR, {"y": 0}, lambda: [node("Softmax", ["x"], ["y"], axis=0)],
        {"x": (f, ["n", 4])}, {"y": (f, ["n", 4])}, shares=False,
    )  # fmt: skip
    for name, weight in (("a little of the record before", 0.02), ("a trace of the record before", 1e-6)):
        found[name] = _onnx(
            VECTOR, {"y": 0},
            lambda: [
                node("Slice", ["x", "zero", "one", "zero"], ["first"]),
                node("Slice", ["x", "zero", "last", "zero"], ["rest"]),
                node("Sub", ["first", "first"], ["nothing"]),
                node("Concat", ["nothing", "rest"], ["before"], axis=0),
                node("Mul", ["before", "weight"], ["some"]),
                node("Add", ["x", "some"], ["y"]),
            ],
            {"x": (f, ["n", 4])}, {"y": (f, ["n", 4])},
            {"zero": np.array([0]), "one": np.array([1]), "last": np.array([-1]), "weight": np.array(weight, "f4")},
            shares=False,
        )  # fmt: skip
    found["similarities"] = _onnx(
        VECTOR, {"y": None}, lambda: [node("Transpose", ["x"], ["z"], perm=[1, 0]), node("MatMul", ["x", "z"], ["y"])],
        {"x": (f, ["n", 4])}, {"y": (f, ["n", "n"])}, shares=False,
    )  # fmt: skip
    found["points"] = _onnx(
        {"x": (None, (7, 3), "float32")}, {"y": None}, lambda: [node("ReduceMax", ["x"], ["y"], axes=[0], keepdims=0)],
        {"x": (f, ["points", 3])}, {"y": (f, [3])}, shares=False,
    )  # fmt: skip
    found["frames"] = _onnx(
        {"x": (None, (7, 4), "float32")}, {"y": None}, lambda: [node("Softmax", ["x"], ["y"], axis=0)],
        {"x": (f, ["frames", 4])}, {"y": (f, ["frames", 4])}, shares=False,
    )  # fmt: skip
    found["a constant beside numbers"] = _onnx(
        VECTOR, {"y": 0, "one": 0},
        lambda: [
            node("Sin", ["x"], ["y"]),
            node("Slice", ["y", "from", "to", "to"], ["s"]),
            node("Equal", ["s", "s"], ["one"]),
        ],
        {"x": (f, [None, 4])}, {"y": (f, [None, 4]), "one": ("BOOL", [None, 1])},
        {"from": np.array([0]), "to": np.array([1])},
    )  # fmt: skip
    found["rank 1"] = _onnx(
        {"x": (0, (), "float32")}, {"y": 0}, lambda: [node("Sin", ["x"], ["y"])], {"x": (f, ["n"])}, {"y": (f, ["n"])}
    )
    found["label and probabilities"] = _onnx(
        VECTOR, {"label": 0, "p": 0},
        lambda: [node("Softmax", ["x"], ["p"]), node("ArgMax", ["x"], ["label"], axis=1, keepdims=0)],
        {"x": (f, [None, 4])}, {"label": ("INT64", [None]), "p": (f, [None, 4])},
    )  # fmt: skip
    return {f"ONNX, {name}": case for name, case in found.items()}


def openvino_cases() -> dict[str, Case]:
    """Return the models of ONNX as OpenVINO has them."""
    found = {}
    for name, case in onnx_cases().items():
        kind = name.removeprefix("ONNX, ")
        # Its Squeeze has no rank where the batch is free.
        if kind == "squeezed" or kind.endswith(", symbols"):
            continue
        inputs, outputs = case.inputs, case.outputs
        if kind == "softmax over the batch":
            # Without the name of the axis, rows that depend on each other are a record.
            inputs, outputs = {"x": (None, (5, 4), "float32")}, {"y": None}
        found[f"OpenVINO, {kind}"] = Case(
            inputs,
            outputs,
            _converted(case),
            _run_openvino,
            case.shares or kind == "batch of 1",
            {"inference_precision": "float32"},
            case.batch,
        )
    return found


def _converted(case: Case) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        openvino = model_zoo.digits().openvino
        case.save(folder)
        openvino.save_model(
            openvino.Core().read_model(folder / "model.onnx"), folder / "model.xml", compress_to_fp16=False
        )
        (folder / "model.onnx").unlink()

    return save


@cache
def _network(path: str) -> Any:
    openvino = model_zoo.digits().openvino
    return openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})


def _run_openvino(folder: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return [value.copy() for value in _network(str(folder / "model.xml"))(feeds).values()]


def _modules() -> dict[str, tuple[Any, dict, dict, bool]]:
    """Return modules of PyTorch by name, with inputs, outputs, and True if records may share a call."""
    import torch

    torch.manual_seed(0)

    class Detector(torch.nn.Module):
        def forward(self, x):
            return torch.nonzero(x > 1.2)[:, 1:]

    class Recurrent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.GRUCell(4, 8), torch.nn.GRUCell(8, 8)

        def forward(self, x, h):
            first = self.first(x, h[0])
            second = self.second(first, h[1])
            return second, torch.stack([first, second])

    class OverTime(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = torch.nn.GRU(4, 8, batch_first=True)

        def forward(self, x):
            return self.cell(x)[0].transpose(0, 1)

    class Threshold(torch.nn.Module):
        def forward(self, x, t):
            return x * t

    class Normalized(torch.nn.Module):
        def forward(self, x, mean, std):
            return torch.nn.functional.layer_norm(x, mean.shape, mean, std)

    class Transposed(torch.nn.Module):
        def forward(self, x):
            return torch.stack([x.sum(1), x.prod(1)])

    class Squeezed(torch.nn.Module):
        def forward(self, x):
            return torch.sin(x).squeeze()

    class Mixing(torch.nn.Module):
        def forward(self, x):
            return x - x.mean(0, keepdim=True) * 0.5

    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)

        def forward(self, x):
            return torch.softmax(self.layer(x), 1)

    return {
        "detector": (Detector(), IMAGE, {"y": None}, False),
        "states": (Recurrent(), {**VECTOR, "h": (1, (2, 8), "float32")}, {"y": 0, "h": 1}, True),
        "over time": (OverTime(), {"x": (0, (5, 4), "float32")}, {"y": 1}, True),
        "threshold": (Threshold(), {**VECTOR, "t": (None, (), "float32")}, {"y": 0}, False),
        "mean and std": (
            Normalized(), {**VECTOR, "mean": (None, (4,), "float32"), "std": (None, (4,), "float32")}, {"y": 0}, False
        ),
        "transposed": (Transposed(), VECTOR, {"y": 1}, True),
        "squeezed": (Squeezed(), {"x": (0, (1, 4), "float32")}, {"y": SQUEEZED}, True),
        "mixing": (Mixing(), VECTOR, {"y": 0}, False),
        "plain": (Plain(), VECTOR, {"y": 0}, True),
    }  # fmt: skip


def torch_cases() -> dict[str, Case]:
    """Return models of TorchScript, with configured shapes and without."""
    found = {}
    for name, (module, inputs, outputs, shares) in _modules().items():
        for shapes in (False, True):
            options = {"input_shapes": tuple(shape for _, shape, _ in inputs.values())} if shapes else {}
            found[f"TorchScript, {name}{', shapes' * shapes}"] = Case(
                inputs, outputs, _script(module), _run_script, shares, options
            )
    return found


def _script(module: Any) -> Callable[[Path], None]:
    return lambda folder: model_zoo.save_torchscript(folder, module)


def _run_script(folder: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    import torch

    return _arrays(torch.jit.load(str(folder / "model.pt"))(*map(torch.from_numpy, map(np.asarray, feeds.values()))))


def _arrays(result: Any) -> list[np.ndarray]:
    return [tensor.detach().numpy() for tensor in (result if isinstance(result, tuple) else (result,))]


def exported_cases() -> dict[str, Case]:
    """Return models of torch.export, whose batch is a dynamic dimension."""
    found = {}
    for name, (module, inputs, outputs, shares) in _modules().items():
        save = _export(module, inputs)
        if name == "mixing":
            # The program keeps no name of the axis.
            inputs, outputs = {"x": (None, (5, 4), "float32")}, {"y": None}
        if name not in ("squeezed", "detector", "over time"):
            found[f"torch.export, {name}"] = Case(inputs, outputs, save, _run_exported, shares)
    return found


def _export(module: Any, inputs: dict) -> Callable[[Path], None]:
    import torch

    def save(folder: Path) -> None:
        batch = torch.export.Dim("batch", min=1, max=64)
        examples = [
            torch.zeros(shape if axis is None else (*shape[:axis], 5, *shape[axis:]))
            for axis, shape, _ in inputs.values()
        ]
        dims = {name: {} if axis is None else {axis: batch} for name, (axis, _, _) in inputs.items()}
        model_zoo.save_exported(folder, module, *examples, dynamic_shapes=dims)

    return save


def _run_exported(folder: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    import torch

    module = _program(str(folder / "model.pt2"))
    return _arrays(module(*map(torch.from_numpy, map(np.asarray, feeds.values()))))


@cache
def _program(path: str) -> Any:
    import torch

    return torch.export.load(path).module()


def tensorflow_cases() -> dict[str, Case]:
    """Return SavedModels."""

    def case(inputs, outputs, function, shapes, **rest: Any) -> Case:
        def save(folder: Path) -> object:
            specs = [tf.TensorSpec(shape, tf.float32, name) for name, shape in shapes.items()]
            return model_zoo.save_savedmodel(folder, function, *specs)

        return Case(inputs, outputs, save, _run_tensorflow, **rest)

    def detect(x):
        return {"y": tf.where(x > 1.2)[:, 1:]}

    w = _weights(4, 8)

    def over_time(x):
        def step(state, one):
            return tf.tanh(state * 0.5 + one @ w)

        return {"y": tf.scan(step, x, tf.zeros([tf.shape(x)[1], 8]))}

    found = {
        "detector": case(IMAGE, {"y": None}, detect, {"x": [None, 3, 6, 5]}, shares=False),
        "detector, batch of 1": case(IMAGE, {"y": None}, detect, {"x": [1, 3, 6, 5]}, shares=False),
        "time first": case({"x": (1, (5, 4), "float32")}, {"y": 1}, over_time, {"x": [None, None, 4]}),
        "threshold": case(
            {"x": (0, (4,), "float32"), "t": (None, (), "float32")}, {"y": 0}, lambda x, t: {"y": x * t},
            {"x": [None, 4], "t": []}, shares=False,
        ),
        "state": case(
            {"x": (0, (4,), "float32"), "state": (1, (2, 8), "float32")}, {"new": 1, "y": 0},
            lambda x, state: {"y": tf.reduce_sum(state, 0) + x @ w, "new": state * 0.5 + (x @ w)[None]},
            {"x": [None, 4], "state": [2, None, 8]},
        ),
        "mixing": case(
            {"x": (None, (5, 4), "float32")}, {"y": None}, lambda x: {"y": x - tf.reduce_mean(x, 0, keepdims=True)},
            {"x": [None, 4]}, shares=False,
        ),
        "transposed": case(VECTOR, {"y": 1}, lambda x: {"y": tf.transpose(tf.sin(x))}, {"x": [None, 4]}),
        "unknown rank": case(VECTOR, {"y": 0}, lambda x: {"y": tf.sin(x)}, {"x": None}),
        "batch of 3": case(VECTOR, {"y": 0}, lambda x: {"y": tf.sin(x)}, {"x": [3, 4]}, batch=3),
    }  # fmt: skip
    return {f"TensorFlow, {name}": case for name, case in found.items()}


@cache
def _signature(path: str) -> Any:
    return tf.saved_model.load(path).signatures["serving_default"]


def _run_tensorflow(folder: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    outputs = _signature(str(folder))(**{name: tf.constant(value) for name, value in feeds.items()})
    return [outputs[name].numpy() for name in sorted(outputs)]
