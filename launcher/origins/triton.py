"""Triton: the folder of a model, `config.pbtxt` and numbered versions; or a repository of such folders."""

from functools import partial
from math import ceil
from pathlib import Path, PurePosixPath
from typing import Any

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins import several, text_proto, triton_ways
from cluster_serving.launcher.origins.fields import NO_KEY, Fields
from cluster_serving.launcher.origins.taken import Source, Taken, numbered, take_versions, tree

EXPECTED = "a model folder of Triton, config.pbtxt and 1/"

_CONFIG = "config.pbtxt"
_FILES = (
    *("model.onnx", "model.pt", "model.xml", "model.savedmodel", "model.plan", "model.py"),
    *("xgboost.json", "xgboost.ubj", "xgboost.model", "model.txt", "model.graphdef"),
)
_REFUSED = {
    "tensorrt": "a TensorRT plan fits one kind of GPU: serve the ONNX file that it was built from",
    "python": "its model.py is not run: move the code into a handler (cluster-serving-init --handler)",
    "ensemble": "take over its models one by one, and call them from a handler (docs/how-to/handlers.md)",
    **dict.fromkeys(("vllm", "tensorrtllm"), "a handler generates text here (docs/how-to/handler-models.md)"),
    "tensorflow_graphdef": "save the graph as a SavedModel where TensorFlow is: a graph alone tells no signature",
    **dict.fromkeys(("dali", "identity", "square", "repeat"), "a handler computes this (docs/how-to/handlers.md)"),
}
_KIND_OF = {"model.py": "python", "model.plan": "tensorrt", "model.graphdef": "tensorflow_graphdef"}
"""File of a version → its backend, which Triton finds without a configuration."""

_NAMES = {
    "onnxruntime": "model.onnx",
    "pytorch": "model.pt",
    "openvino": "model.xml",
    "xgboost": "model.xgb",
    "xgboost_json": "model.json",
    "xgboost_ubj": "model.ubj",
    "lightgbm": "model.txt",
}
"""Start of a platform or backend, or a `model_type` of FIL → name of its file here."""

_OF_MANY = (".json", ".txt")
"""Suffixes that tell no engine without the name of the file."""


def read(path: Path) -> Taken | None:
    """Return the model of a folder, or all those of a repository; None if the path is neither."""
    if not path.is_dir():
        return None
    if _is_model(path):
        return _read(path)
    folders = sorted(folder for folder in path.iterdir() if folder.is_dir())
    models = [folder for folder in folders if _is_model(folder) or (folder / _CONFIG).is_file()]
    if not any(map(_is_model, models)):
        return None
    readers = {folder.name: partial(_read, folder) for folder in models}
    taken = several.take(f"the Triton repository {path}", path.resolve().name, readers)
    taken.left += several.unread(path, {folder.name for folder in models})
    return taken


def _read(folder: Path) -> Taken:
    config = Fields(_config(folder), repeated=True)
    kind = str(config.take("backend") or config.take("platform") or "")
    config.take("platform")
    versions = numbered(folder)
    kind = kind or next((named for file, named in _KIND_OF.items() if versions and (versions[0] / file).exists()), "")
    for refused, remedy in _REFUSED.items():
        if kind.startswith(refused):
            raise LaunchError(f"{folder} is a model of Triton's {kind}: {remedy}")
    if not _is_model(folder):
        raise LaunchError(f"{folder} has no numbered version of a model: copy one there, as {folder.name}/1/model.onnx")
    taken = Taken(f"the Triton model {folder}")
    taken.name(str(config.take("name") or folder.name))
    _take_parameters(taken, config, kind)
    kind = str(_parameter(config, "model_type") or kind)
    named = str(config.take("default_model_filename") or "")
    for version in versions:
        taken.files |= _files(version, named, kind)
    _take_batches(taken, config)
    _take_instances(taken, config.parts("instance_group"))
    _take_ports(taken, config)
    labels = _take_labels(taken, config, folder)
    found = [int(version.name) for version in versions]
    take_versions(taken, "version_policy", config.part("version_policy"), found)
    taken.left += config.left(_CONFIG, ways=triton_ways.FIELDS)
    taken.left += several.unread(folder, {_CONFIG, *labels, *(version.name for version in versions)})
    return taken


def _is_model(folder: Path) -> bool:
    versions = numbered(folder)
    return bool(versions) and ((folder / _CONFIG).is_file() or any((versions[0] / name).exists() for name in _FILES))


def _config(folder: Path) -> text_proto.Message:
    file = folder / _CONFIG
    try:
        return text_proto.parse(file.read_text("utf8")) if file.is_file() else {}
    except ValueError as error:
        raise LaunchError(f"{file} is not a protobuf message as text: {error}") from None


def _files(version: Path, named: str, kind: str) -> dict[str, Source | bytes]:
    """Return the files of a version; a SavedModel is in the folder of its version itself.

    `named` is the file or folder with the model if it does not have the usual name.
    """
    saved = version / (named or "model.savedmodel")
    if named and not saved.exists():
        raise LaunchError(f"{version} has no {named}, which {_CONFIG} names as default_model_filename")
    files = tree(saved if saved.is_dir() else version, f"{version.name}/")
    ours = _NAMES.get(kind) or next((name for start, name in _NAMES.items() if kind.startswith(f"{start}_")), "")
    own = named or (ours and next((name for name in _FILES if (version / name).is_file()), ""))
    suffix = Path(ours).suffix
    if not ours or saved.is_dir() or not own or (Path(own).suffix == suffix and suffix not in _OF_MANY):
        return files
    # Here, the end of its name tells the engine.
    files[f"{version.name}/{ours}"] = files.pop(f"{version.name}/{own}")
    return files


def _parameter(config: Fields, key: str) -> Any:
    found = [part for part in config.parts("parameters") if part.take("key") == key]
    return found[-1].part("value").take("string_value") if found else None


def _take_parameters(taken: Taken, config: Fields, kind: str) -> None:
    """Take the parameters of FIL, the backend of boosters, and name the others."""
    known = ("model_type", "predict_proba", "output_class") if kind == "fil" else ()
    values = {key: str(_parameter(config, key) or "").lower() for key in known}
    if values.get("model_type", "").startswith("treelite"):
        raise LaunchError("the model is a checkpoint of Treelite: serve the file of XGBoost or LightGBM it was made of")
    if kind == "fil":
        # Its clients send all features as one vector, also where the file has the names of columns.
        taken.keys["inputs"] = "x"
    if values.get("predict_proba") == "true":
        taken.keys["outputs"] = "probabilities"
    elif values.get("output_class") == "true":
        taken.keys["outputs"] = "label"
    elif kind == "fil":
        taken.left.append(
            "output__0 of FIL, which stands for the only output of a model: for a classifier, set outputs to label or "
            "probabilities"
        )
    for part in config.parts("parameters"):
        key = part.take("key")
        if key not in known:
            value = str(part.part("value").take("string_value"))
            if key in triton_ways.THREADS and value.isdecimal() and int(value):
                taken.keys["threadPerModel"] = int(value)
                continue
            way = triton_ways.PARAMETERS.get(str(key), NO_KEY)
            taken.left.append(f"the parameter {key} ({value}) of {_CONFIG}: {way}")


def _take_batches(taken: Taken, config: Fields) -> None:
    batching = config.part("dynamic_batching")
    policy = batching.part("default_queue_policy")
    microseconds = {
        "batchTimeout": batching.take("max_queue_delay_microseconds"),
        "requestDeadline": policy.take("default_timeout_microseconds"),
    }
    most = config.take("max_batch_size")
    numbers = {"maxBatchSize": most, "maxQueueLength": policy.take("max_queue_size")}
    numbers |= {key: ceil(value / 1000) for key, value in microseconds.items() if value}
    taken.keys |= {key: value for key, value in numbers.items() if value}
    why = "a batch is computed as soon as the slot is free"
    taken.left += batching.leave(f"dynamic_batching in {_CONFIG}", why, "preferred_batch_size")
    if most == 0:
        taken.left.append(
            f"max_batch_size 0 of {_CONFIG}: here a first dimension that the model leaves free is that of a batch; set "
            "wholeInputs: true if a record has the whole tensors"
        )


def _take_instances(taken: Taken, groups: list[Fields]) -> None:
    kinds = {group.take("kind") for group in groups}
    gpus = [group.every("gpus") for group in groups]
    if "KIND_GPU" in kinds:
        numbers = sorted({number for group in gpus for number in group})
        taken.keys["device"] = ",".join(f"cuda:{number}" for number in numbers) or "cuda"
    if groups:
        # A passive group computes no requests.
        counts = [
            (group.take("count") or 1) * (len(own) or 1)
            for group, own in zip(groups, gpus, strict=True)
            if group.take("passive") is not True
        ]
        taken.keys["modelParallelism"] = sum(counts) or 1


def _take_ports(taken: Taken, config: Fields) -> None:
    inputs, outputs = config.parts("input"), config.parts("output")
    dims = [port.every("dims") for port in inputs]
    if inputs and all(name.endswith(".pt") for name in taken.files):
        # TorchScript tells no shapes. The dims of a model with batches are those of a record.
        has_batch = not config.take("max_batch_size")
        taken.keys["inputShapes"] = [sizes[1:] if has_batch else sizes for sizes in dims]
        taken.left.append("the names of the inputs: they are those of forward's arguments, or counted by position")
    for port in (*inputs, *outputs):
        name = port.take("name")
        port.take("data_type"), port.every("dims")
        why = "the key imageLayout has the order of the axes of images"
        taken.left += port.leave(f"{name!r} in {_CONFIG}", why, "format")
        if "reshape" in port:
            shape = port.part("reshape").every("shape")
            taken.left.append(
                f"reshape of {name!r} in {_CONFIG}: clients send, and get, the shape of the model's own: {shape}"
            )


def _take_labels(taken: Taken, config: Fields, folder: Path) -> set[str]:
    """Copy the files with the names of classes beside the models; return their names."""
    files = {str(file) for port in config.parts("output") if (file := port.take("label_filename"))}
    for file in sorted(files):
        name = PurePosixPath(file).name
        is_there = (folder / file).is_file() and ".." not in PurePosixPath(file).parts
        if is_there:
            taken.files |= {f"{version.name}/{name}": folder / file for version in numbered(folder)}
        missing = "" if is_there else f"copy it beside the model, as {folder} does not have it, and "
        taken.left.append(f"label_filename {file} of {_CONFIG}: {missing}set postProcessing: topN(3) | labels({name})")
    return files
