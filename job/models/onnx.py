"""ONNX: a `*.onnx`, with external data beside it if it has any, run by ONNX Runtime."""

import re
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cluster_serving.job.models import onnx_shapes_pb2, telemetry
from cluster_serving.job.models.base import Model, TensorSpec, cause
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.devices import NO_GPU, Reported, cuda_driver_devices
from cluster_serving.job.models.graph.network import Graph
from cluster_serving.job.models.graph.onnx.encoders import ENCODER, UNKNOWN, Encoders
from cluster_serving.job.models.graph.onnx.indices import Indices
from cluster_serving.job.models.graph.onnx.known import KEYS, known
from cluster_serving.job.models.graph.onnx.reader import read
from cluster_serving.job.models.operators import Package, load_with
from cluster_serving.job.models.ports import choose, choose_inputs
from cluster_serving.job.options import CPU, ModelOptions
from cluster_serving.protocol.errors import InvalidInput, ModelError
from cluster_serving.protocol.inputs import Array

telemetry.forbid()

import onnxruntime  # noqa: E402

_DTYPES = {
    "float": "float32",
    "double": "float64",
    "string": "str",
    "bool": "bool",
    "float16": "float16",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""ONNX element type → numpy name. A type that is missing here cannot be sent."""

_ZIPMAP = re.compile(r"seq\(map\((int64|string),tensor\(float\)\)\)")
"""Type of the probabilities of a classifier that skl2onnx converted: for each record a map from label to number."""

_LABELS = "{}_labels"
"""Name of the output that has the keys of maps."""

_EXTERNAL = re.compile(rb"\n\x08location\x12(.)", re.DOTALL)
"""Key of the protobuf map entry that names a file of external data, and the length of the name."""


_EXTENSIONS = "onnxruntime_extensions"
_PACKAGES = (Package(_EXTENSIONS, "onnxruntime-extensions", "ai\\.onnx\\.contrib:"),)
_MISSING = r"(\S+:\w+)\(-?\d+\) is not a registered function/op"

_NOISE = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from \S+ failed:|Fatal error: |/\S+\.(cc|h):\d+ .*?\) (?=[A-Z])"
)
"""What ONNX Runtime's errors have before their cause."""

_CUDA = "CUDAExecutionProvider"

_NORMALIZATION = "BatchNormalization"
_LOOP = b'"\x04Loop'
"""Type of a node, as its message has it."""

_MOST_READ = 256 << 20
"""Largest file, in bytes, whose nodes are read."""


def devices() -> Reported:
    """Return the devices of ONNX Runtime: those of the driver if the package has the provider for them."""
    has_cuda = _CUDA in onnxruntime.get_available_providers()
    package = (
        "run pip uninstall onnxruntime, and then pip install 'onnxruntime-gpu[cuda,cudnn]', where the TaskManagers run"
    )
    names = (CPU, *(cuda_driver_devices() if has_cuda else ()))
    return Reported(f"ONNX Runtime {onnxruntime.__version__}", names, NO_GPU if has_cuda else package)


class OnnxModel(Model):
    """An ONNX model."""

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        self.engine = files.format.engine
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.thread_per_model
        settings.inter_op_num_threads = 1
        settings.log_severity_level = 4  # no errors; they are raised
        # Threads that wait for work would otherwise spin on the cores of the other copies.
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        path, providers = files.paths[0], _providers(options.device)
        self._path = path
        content = path.read_bytes()
        self.careful = _LOOP in content
        self._training_layer = _training_layer(content)
        has_keys = any(name in content for name in KEYS)
        has_encoders = ENCODER.encode() in content and len(content) <= _MOST_READ
        self._encoders = Encoders(content if has_encoders else b"")
        self.has_sample = bool(self._encoders)
        # ONNX Runtime reads the buffers while it makes the session, and does not keep them alive.
        buffers = _add_external_data(settings, path, content)
        # ONNX Runtime reads the file itself, and memory need not have it twice.
        del content
        if options.device != CPU:
            # CUDA and cuDNN from PyPI are in no folder that the system looks into.
            onnxruntime.preload_dlls()
        try:
            self._loaded = load_with(
                lambda: _session(path, settings, providers), _MISSING, _PACKAGES, path, self.engine
            )
        except ModelError:
            raise
        except Exception as error:
            raise _refusal(path, cause(error)) from error
        del buffers
        if options.device != CPU and _CUDA not in self._loaded.get_providers():
            # ONNX Runtime goes on without a provider that cannot start, and writes the reason to standard error.
            raise ModelError(
                f"device is {options.device}, and ONNX Runtime {onnxruntime.__version__} cannot start its {_CUDA}: the "
                "log of the TaskManager names the library that is missing, usually CUDA or cuDNN; run pip install "
                "'onnxruntime-gpu[cuda,cudnn]' where the TaskManagers run, or set device: cpu"
            )
        inputs = {port.name: port for port in self._loaded.get_inputs()}
        # Inputs with a default value may be fed, too; old models list all weights as such inputs.
        inputs |= {
            port.name: port for port in self._loaded.get_overridable_initializers() if port.name in options.inputs
        }
        # ONNX Runtime gives [] as the shape of a scalar, and as that of an input without one.
        empty = [name for name, port in inputs.items() if not port.shape]
        scalars = _scalars(path).intersection(empty) if empty else set()
        specs = {name: _spec(port, name in scalars) for name, port in inputs.items()}
        self.inputs = choose_inputs(options.inputs, specs)
        self.symbols = {
            name: [size if isinstance(size, str) else "" for size in port.shape] for name, port in inputs.items()
        }
        ports = {port.name: port for port in self._loaded.get_outputs()}
        # An output of maps is two outputs of ours; `_read_from` has the port of each.
        self._read_from = {_LABELS.format(name): name for name, port in ports.items() if _ZIPMAP.fullmatch(port.type)}
        available = {name: _spec(port) for name, port in ports.items()}
        for labels, name in self._read_from.items():
            available[labels] = TensorSpec(labels, "str" if "(string" in ports[name].type else "int64", (None, None))
        self.outputs = choose("output", options.outputs, available)
        with_texts = any(spec.dtype == "str" for spec in self.inputs)
        if (with_texts or has_keys) and path.stat().st_size <= _MOST_READ:
            self.known = known(path.read_bytes(), with_texts)
        self._output_names = list(dict.fromkeys(self._read_from.get(spec.name, spec.name) for spec in self.outputs))

    def _run(self, inputs: Sequence[Array]) -> list[Array]:
        feeds = {spec.name: array for spec, array in zip(self.inputs, inputs, strict=True)}
        try:
            outputs: list[Any] = self._loaded.run(self._output_names, feeds)
        except Exception as error:
            refused = self._refused(str(error), feeds) if len(inputs[0]) == 1 else None
            raise refused or error from None
        return self._without_maps(outputs) if self._read_from else outputs

    def _refused(self, message: str, record: Mapping[str, Array]) -> InvalidInput | None:
        """Return the error that names a value of one record; None if the message tells of none."""
        return self._encoders.refusal(record) if UNKNOWN in message else self._indices.refusal(message, record)

    @cached_property
    def _indices(self) -> Indices:
        return Indices(self._content() or b"")

    def sample(self, batch: int | None) -> list[Array] | None:
        """See `Model.sample`; what is encoded is a category."""
        sample = super().sample(batch)
        if sample is not None:
            self._encoders.fill({spec.name: array for spec, array in zip(self.inputs, sample, strict=True)})
        return sample

    @property
    def guesses(self) -> bool:
        """True if zeros need not be a possible request."""
        return super().guesses or self.has_sample

    def training_layer(self) -> str:
        """See `Model.training_layer`."""
        return self._training_layer

    def graph(self) -> Graph | None:
        """See `Model.graph`."""
        if (content := self._content()) is None:
            return None
        return read(content, {spec.name: self._read_from.get(spec.name, spec.name) for spec in self.outputs})

    def _content(self) -> bytes | None:
        """Return the file; None if it is large, or gone."""
        try:
            return None if self._path.stat().st_size > _MOST_READ else self._path.read_bytes()
        except OSError:
            # The decrypted file is gone once the model is loaded.
            return None

    def _without_maps(self, outputs: Sequence[Any]) -> list[Array]:
        named = dict(zip(self._output_names, outputs, strict=True))
        for labels, name in self._read_from.items():
            if name in named:
                # The maps of all records have the same keys.
                maps = named[name]
                named[name] = np.array([[row[key] for key in maps[0]] for row in maps], np.float32)
                keys = np.array(list(maps[0]), object if isinstance(next(iter(maps[0])), str) else np.int64)
                named[labels] = np.tile(keys, (len(maps), 1))
        return [named[spec.name] for spec in self.outputs]


def _session(path: Path, settings: Any, providers: list[Any]) -> Any:
    # Importing a package of operators does not register them.
    extensions = sys.modules.get(_EXTENSIONS)
    if extensions is not None:
        settings.register_custom_ops_library(extensions.get_library_path())
    return onnxruntime.InferenceSession(str(path), settings, providers=providers)


def _refusal(path: Path, text: str) -> ModelError:
    """Return the error for a model that ONNX Runtime cannot load, without the signatures of its functions."""
    version = f"ONNX Runtime {onnxruntime.__version__}"
    remedy = "run pip install --upgrade onnxruntime where the TaskManagers run, or export the model for that version"
    if found := re.search(r"Unsupported model IR version: (\d+), max supported IR version: (\d+)", text):
        return ModelError(f"{path} is of ONNX IR version {found[1]}, and {version} takes at most {found[2]}: {remedy}")
    if found := re.search(r"Opset (\d+) is under development.*?(?:for domain (\S+) )?is till opset (\d+)", text):
        domain = f" of {found[2]}" if found[2] else ""
        return ModelError(
            f"{path} is of ONNX opset {found[1]}{domain}, and {version} takes at most {found[3]}: {remedy}"
        )
    if "INVALID_PROTOBUF" in text or "Protobuf parsing failed" in text:
        return ModelError(f"{path} is not an ONNX model, or it is cut off: copy it again, or save the model again")
    if found := re.search(r"construct locale with name:((\w+)[\w.@-]*)", text):
        return ModelError(
            f"{path} needs the locale {found[1]}, which is not installed where the job runs: run apt-get install "
            f"locales and localedef -i {found[2]} -f UTF-8 {found[1]} there, or export the model with locale='C'"
        )
    return ModelError(f"{version} cannot load {path}: {_NOISE.sub('', text)}")


def _providers(device: str) -> list[Any]:
    """Return the providers, by priority: the CPU computes what CUDA lacks."""
    cpu = "CPUExecutionProvider"
    if device == CPU:
        return [cpu]
    # By default, every new size of a batch would wait until all algorithms of its convolutions have been timed.
    return [(_CUDA, {"device_id": device.partition(":")[2], "cudnn_conv_algo_search": "HEURISTIC"}), cpu]


def _add_external_data(settings: Any, path: Path, content: bytes) -> list[bytes]:
    """Read external data into memory, and return the buffers, which have to live until the session is made.

    If the data were mapped, overwriting the file would end the process (SIGBUS).
    """
    names = {content[match.end() : match.end() + match.group(1)[0]] for match in _EXTERNAL.finditer(content)}
    decoded = sorted(name.decode("utf-8", "replace") for name in names)
    files = [name for name in decoded if (path.parent / name).is_file()]
    buffers = [(path.parent / name).read_bytes() for name in files]
    if files:
        settings.add_external_initializers_from_files_in_memory(files, buffers, [*map(len, buffers)])
    return buffers


def _training_layer(content: bytes) -> str:
    """Return the name of a batch normalization that computes as in training; empty if there is none."""
    if len(content) > _MOST_READ or _NORMALIZATION.encode() not in content:
        return ""
    for node in onnx_shapes_pb2.Model.FromString(content).graph.node:
        # Up to opset 13, further outputs say so.
        trains = any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute)
        if node.op_type == _NORMALIZATION and (trains or len(node.output) > 1):
            return str(node.name or node.output[0])
    return ""


def _scalars(path: Path) -> set[str]:
    """Return the names of the inputs with a shape of no dimensions."""
    graph = onnx_shapes_pb2.Model.FromString(path.read_bytes()).graph
    return {info.name for info in graph.input if info.type.tensor_type.HasField("shape")}


def _spec(port: Any, is_scalar: bool = False) -> TensorSpec:
    if _ZIPMAP.fullmatch(port.type):
        return TensorSpec(port.name, "float32", (None, None))
    kind = re.fullmatch(r"tensor\((\w+)\)", port.type)
    dtype = _DTYPES.get(kind.group(1), port.type) if kind else port.type
    known = port.shape or is_scalar
    shape = tuple(size if isinstance(size, int) else None for size in port.shape) if known else None
    return TensorSpec(port.name, dtype, shape)
