"""ONNX: a `*.onnx`, with external data beside it if it has any, run by ONNX Runtime on the CPU."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime

from cluster_serving.job.models.base import Model, TensorSpec, choose, choose_inputs, common_batch
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.inputs import Array

_DTYPES = {
    "float": "float32",
    "double": "float64",
    "string": "str",
    "bool": "bool",
    "float16": "float16",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""ONNX element type → numpy name. A type that is missing here cannot be sent."""

_EXTERNAL = re.compile(rb"\n\x08location\x12(.)", re.DOTALL)
"""Key of the protobuf map entry that names a file of external data, and the length of the name."""


class OnnxModel(Model):
    """An ONNX model. If its batch dimension is fixed, batches are cut and padded to it."""

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        self.engine = files.format.engine
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.thread_per_model
        settings.inter_op_num_threads = 1
        settings.log_severity_level = 3  # errors; they are raised, too
        # Threads that wait for work would otherwise spin on the cores of the other copies.
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # ONNX Runtime reads the buffers while it makes the session, and does not keep them alive.
        buffers = _add_external_data(settings, files.paths[0])
        self._loaded = onnxruntime.InferenceSession(str(files.paths[0]), settings, providers=["CPUExecutionProvider"])
        del buffers
        self.inputs = choose_inputs(options.inputs, {port.name: _spec(port) for port in self._loaded.get_inputs()})
        self.outputs = choose(
            "output", options.outputs, {port.name: _spec(port) for port in self._loaded.get_outputs()}
        )
        self._output_names = [spec.name for spec in self.outputs]
        self.fixed_batch = common_batch(self.inputs)

    def _run(self, inputs: Sequence[Array]) -> list[Array]:
        feeds = {spec.name: array for spec, array in zip(self.inputs, inputs, strict=True)}
        outputs: list[Array] = self._loaded.run(self._output_names, feeds)
        return outputs


def _add_external_data(settings: Any, path: Path) -> list[bytes]:
    """Read external data into memory, and return the buffers, which have to live until the session is made.

    If the data were mapped, overwriting the file would end the process (SIGBUS).
    """
    content = path.read_bytes()
    names = {content[match.end() : match.end() + match.group(1)[0]] for match in _EXTERNAL.finditer(content)}
    decoded = sorted(name.decode("utf-8", "replace") for name in names)
    files = [name for name in decoded if (path.parent / name).is_file()]
    buffers = [(path.parent / name).read_bytes() for name in files]
    if files:
        settings.add_external_initializers_from_files_in_memory(files, buffers, [*map(len, buffers)])
    return buffers


def _spec(port: Any) -> TensorSpec:
    kind = re.fullmatch(r"tensor\((\w+)\)", port.type)
    dtype = _DTYPES.get(kind.group(1), port.type) if kind else port.type
    # An empty list stands for a scalar, and for a shape that is not known.
    shape = tuple(size if isinstance(size, int) else None for size in port.shape) if port.shape else None
    return TensorSpec(port.name, dtype, shape)
