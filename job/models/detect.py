"""The kinds of model folders, and the detection of a folder's kind by file names, without importing an engine."""

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from cluster_serving.job.models.location import locate
from cluster_serving.job.options import ModelOptions
from cluster_serving.job.remote.fetch import parse
from cluster_serving.job.remote.url import is_url
from cluster_serving.protocol.errors import EngineMissing, ModelError

_MAX_LISTED = 20


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of model folder.

    Attributes:
        engine: Name of the engine, for people.
        loader: Module beside this one, and its function or class that takes `ModelFiles` and `ModelOptions` and returns
            a `Model`: "module:name".
        package: Package that the module imports.
        extra: Extra of the distribution that installs the package.
        parts: Required parts of the folder: for each the patterns, in lower case, of which one matches. A pattern of a
            folder ends with `/`.
        ignored: Names, in lower case, that match a pattern but belong to another format.
    """

    engine: str
    loader: str
    package: str
    extra: str
    parts: tuple[tuple[str, ...], ...]
    ignored: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.engine}: {' and '.join(' or '.join(patterns) for patterns in self.parts)}"


FORMATS = (
    Format("OpenVINO", "openvino.ir:OpenVINOModel", "openvino", "openvino", (("*.xml",), ("*.bin",))),
    Format(
        "TensorFlow",
        "tensorflow.saved_model:SavedModel",
        "tensorflow",
        "tensorflow",
        (("saved_model.pb",), ("variables/",)),
    ),
    Format(
        "TensorFlow frozen graph",
        "tensorflow.frozen_graph:FrozenGraph",
        "tensorflow",
        "tensorflow",
        (("*.pb",), ("graph_meta.json",)),
        frozenset({"saved_model.pb", "fingerprint.pb", "keras_metadata.pb"}),
    ),
    Format(
        "TensorFlow checkpoint",
        "tensorflow.checkpoint:Checkpoint",
        "tensorflow",
        "tensorflow",
        (("*.meta",), ("*.index", "*.ckpt")),
    ),
    Format("Keras", "tensorflow.keras:KerasModel", "tensorflow", "tensorflow", (("*.keras", "*.h5"),)),
    Format("TorchScript", "torch.script:load", "torch", "torch", (("*.pt", "*.pth"),)),
    Format("torch.export", "torch.exported:ExportedProgram", "torch", "torch", (("*.pt2",),)),
    Format("ONNX Runtime", "onnx:OnnxModel", "onnxruntime", "onnx", (("*.onnx",),)),
    Format("Caffe", "caffe:CaffeModel", "cv2", "caffe", (("*.prototxt",), ("*.caffemodel",))),
    Format("BigDL", "bigdl.model:BigDLModel", "torch", "bigdl", (("*.model", "*.bigdl"),)),
)
"""Every kind of model that can be served."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of the one model in a folder; `paths` has one path per part of the format."""

    format: Format
    folder: Path
    paths: tuple[Path, ...]


def detect(folder: str | Path) -> ModelFiles:
    """Find the one model in a folder. Subfolders, hidden files and unrelated files do not matter.

    Raises:
        ModelError: If there is no such folder, or it holds no model, a part of a model, or more than one.
    """
    folder = Path(folder)
    return identify(_list(folder), folder)


def identify(names: Iterable[str], folder: str | Path) -> ModelFiles:
    """Find the one model among the names in a folder, of which those of subfolders end with `/`.

    `folder` stands for the folder in messages, and need not be on this machine.

    Raises:
        ModelError: If there is no model, a part of a model, or more than one.
    """
    names = sorted(name for name in names if not name.startswith("."))
    matches_of = {
        format: [_matching(names, patterns, format.ignored) for patterns in format.parts] for format in FORMATS
    }
    complete = [format for format, parts in matches_of.items() if all(parts)]
    if not complete:
        begun = [format for format, parts in matches_of.items() if any(parts)]
        raise _error(folder, names, "only a part of a model" if begun else "no model", begun or FORMATS)
    format, parts = complete[0], matches_of[complete[0]]
    if len(complete) > 1 or any(len(matches) > 1 for matches in parts):
        raise _error(folder, names, "more than one model", complete)
    return ModelFiles(format, Path(folder), tuple(Path(folder, matches[0]) for matches in parts))


def check(options: ModelOptions) -> ModelFiles:
    """Find the model, which is fetched if it is at an address, and check its engine, which is not imported.

    Raises:
        ModelError: As for `locate` and `detect`.
        EngineMissing: If the engine is not installed. The message has the command that installs it.
    """
    folder = locate(options.path)
    try:
        files = detect(folder)
    except ModelError as error:
        if not is_url(options.path):
            raise
        raise ModelError(str(error).replace(str(folder), str(parse(options.path)))) from None
    check_engine(files.format, options.path)
    return files


def check_engine(format: Format, path: str) -> None:
    """Check that the engine of the model at a path or address is installed.

    Raises:
        EngineMissing: If it is not.
    """
    if importlib.util.find_spec(format.package) is None:
        place = parse(path) if is_url(path) else path
        raise EngineMissing(
            f"the model in {place} needs {format.engine}, and the Python package {format.package} is not "
            f"installed: run pip install 'cluster-serving[{format.extra}]'"
        )


def _list(folder: Path) -> list[str]:
    if not folder.exists():
        raise ModelError(f"the model folder {folder} does not exist")
    if not folder.is_dir():
        raise ModelError(f"{folder} is a file; modelPath has to name the folder of the model")
    try:
        return [entry.name + "/" * entry.is_dir() for entry in folder.iterdir()]
    except OSError as error:
        raise ModelError(f"the model folder {folder} cannot be read: {error.strerror}") from error


def _matching(names: list[str], patterns: tuple[str, ...], ignored: frozenset[str]) -> list[str]:
    return [
        name
        for name in names
        if name.lower() not in ignored and any(fnmatchcase(name.lower(), pattern) for pattern in patterns)
    ]


def _error(folder: str | Path, names: list[str], problem: str, expected: Iterable[Format]) -> ModelError:
    listed = ", ".join(names[:_MAX_LISTED]) or "nothing"
    if len(names) > _MAX_LISTED:
        listed += f" and {len(names) - _MAX_LISTED} more"
    formats = "; ".join(map(str, expected))
    return ModelError(f"the model folder {folder} holds {problem}. Found: {listed}. Expected one of: {formats}.")
