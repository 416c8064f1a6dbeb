"""The common part of the TensorFlow formats: a graph, run by a session of its own with its own threads."""

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from cluster_serving.job.models.base import Model, TensorSpec
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.devices import NO_GPU, Reported, cuda_names
from cluster_serving.job.models.operators import Package, load_with
from cluster_serving.job.models.ports import choose
from cluster_serving.job.options import CPU, ModelOptions
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.inputs import Array

# By default the first session of a process sets the number of compute threads for all sessions. Measured with this
# variable: a one-thread copy uses 1.0 cores, and a two-thread copy beside it 1.8.
os.environ["TF_OVERRIDE_GLOBAL_THREADPOOL"] = "1"
# By default the first session on a GPU takes its whole memory; other slots and jobs use it, too.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only: at import TensorFlow reports CPU features and GPUs

import tensorflow as tf

from cluster_serving.job.models.tensorflow.known import bounds, known

__all__ = ["SessionModel", "has_tensor", "tensor_name", "tf"]  # import TensorFlow from here, as it is set up here

tf.get_logger().setLevel("ERROR")  # the session API warns that it is deprecated

T = TypeVar("T")

_MISSING_OPERATOR = r"Op type not registered '(\w+)'"
"""Pattern of TensorFlow's errors about an operator that nothing has registered."""

_PACKAGES = (
    Package("tensorflow_text", "tensorflow-text"),
    Package("tensorflow_decision_forests", "tensorflow-decision-forests"),
    Package("tensorflow_io", "tensorflow-io"),
)
"""Packages with operators for TensorFlow, whose names do not tell where they are from."""


def with_operators(load: Callable[[], T], path: Path) -> T:
    """Load a model, with the packages that have its operators; see `operators.load_with`."""
    return load_with(load, _MISSING_OPERATOR, _PACKAGES, path, f"TensorFlow {tf.__version__}")


def devices() -> Reported:
    """Return the devices that TensorFlow reports."""
    if tf.test.is_built_with_cuda():
        remedy = f"{NO_GPU}; the libraries of CUDA come with pip install 'tensorflow[and-cuda]'"
    else:
        remedy = (
            "this build of TensorFlow has no CUDA, so run pip uninstall tensorflow-cpu, and then "
            f"pip install 'tensorflow[and-cuda]=={tf.__version__}', where the TaskManagers run"
        )
    names = (CPU, *cuda_names(len(tf.config.list_physical_devices("GPU"))))
    return Reported(f"TensorFlow {tf.__version__}", names, remedy)


class SessionModel(Model):
    """A graph in a session. A subclass loads the graph and names its inputs and outputs.

    `ModelOptions.inputs` and `outputs` may use these names, or name tensors of the graph, with or without ":0".
    """

    layout = "HWC"
    # In version 1 and 2 of TensorFlow.
    _LOOPS = (b"LoopCond", b"While")

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        self.engine = files.format.engine
        # Eager functions share one pool of threads per process, and a call of one costs three times as much.
        self._session = tf.compat.v1.Session(
            graph=tf.Graph(),
            config=tf.compat.v1.ConfigProto(
                intra_op_parallelism_threads=options.thread_per_model,
                inter_op_parallelism_threads=1,
                use_per_session_threads=True,
                # Operations that a GPU lacks, such as those on strings, run on the CPU.
                allow_soft_placement=True,
                device_count={"GPU": 0} if options.device == CPU else {},
            ),
        )
        try:
            with self._session.graph.as_default(), tf.device(_place(options.device)):
                input_keys, output_keys = self._build(self._session, files, options)
                inputs = _tensors(self._session.graph, "input", options.inputs, input_keys)
                outputs = _tensors(self._session.graph, "output", options.outputs, output_keys)
                # numpy has no bfloat16: such inputs come, and such outputs leave, as float32.
                self._halves = [index for index, t in enumerate(inputs.values()) if t.dtype == tf.bfloat16]
                fetches: list[Any] = [tf.cast(t, tf.float32) if t.dtype == tf.bfloat16 else t for t in outputs.values()]
            self.inputs = [_spec(name, tensor) for name, tensor in inputs.items()]
            self.outputs = [_spec(name, tensor) for name, tensor in zip(outputs, fetches, strict=True)]
            self._fetches = fetches
            with_texts = any(spec.dtype == "str" for spec in self.inputs)
            if with_texts or any(spec.dtype.startswith(("int", "uint")) for spec in self.inputs):
                self.known = known(self._session, with_texts)
            self._call: Any = self._session.make_callable(fetches, feed_list=[*inputs.values()], accept_options=True)
        except BaseException:
            self._session.close()
            raise
        # Run in the calling thread instead of handing calls to the session's: 66 instead of 176 µs for a small model.
        self._options = tf.compat.v1.RunOptions(inter_op_thread_pool=-1)

    def bounds(self, most: int) -> list[Array]:
        """See `Model.bounds`."""
        return bounds(self._session, most)

    def close(self) -> None:
        """Free the session."""
        self._call, self._fetches = None, []
        self._session.close()

    @abstractmethod
    def _build(self, session: Any, files: ModelFiles, options: ModelOptions) -> tuple[dict[str, str], dict[str, str]]:
        """Load the graph and the values of its variables into the session, whose graph is the default graph.

        Returns:
            Inputs and outputs, in order: name → name of the tensor ("x:0").
        """

    def _run(self, inputs: Sequence[Array]) -> list[Array]:
        given = list(inputs)
        for index in self._halves:
            given[index] = given[index].astype(tf.bfloat16.as_numpy_dtype)
        outputs = self._call(*given, options=self._options)
        return [_text(array) if array.dtype.kind in "OS" else array for array in map(np.asarray, outputs)]


def tensor_name(name: str) -> str:
    """Return the full name of a tensor: "x:0" for "x"."""
    return name if ":" in name else f"{name}:0"


def has_tensor(graph: Any, name: str) -> bool:
    """Return True if the graph has a tensor of this full name ("x:0")."""
    try:
        graph.get_tensor_by_name(name)
    except (KeyError, ValueError):
        return False
    return True


def _place(device: str) -> str | None:
    """Return TensorFlow's name of a device for the operations that a graph gets; None leaves it to TensorFlow."""
    return None if device == CPU else f"/GPU:{device.partition(':')[2]}"


def _tensors(graph: Any, kind: str, wanted: Sequence[str], keys: Mapping[str, str]) -> dict[str, Any]:
    """Return name → tensor for the wanted names, or for all keys if none is wanted."""
    others = {name: tensor_name(name) for name in wanted if name not in keys and has_tensor(graph, tensor_name(name))}
    names = choose(kind, wanted, dict(keys) | others)
    tensors = dict(zip(wanted or keys, names, strict=True))
    for key, name in tensors.items():
        if not name:
            raise ModelError(f"{kind} {key!r} is sparse or ragged; only dense tensors can be served")
    return {key: graph.get_tensor_by_name(name) for key, name in tensors.items()}


def _spec(name: str, tensor: Any) -> TensorSpec:
    dtype = tensor.dtype.base_dtype
    shape = None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
    return TensorSpec(name, {tf.string: "str", tf.bfloat16: "float32"}.get(dtype, dtype.name), shape)


def _text(array: Array) -> Array:
    return np.fromiter((item.decode("utf-8", "replace") for item in array.flat), object).reshape(array.shape)
