"""Triton: the folder of a model, `config.pbtxt` and numbered versions; or a repository of one model."""

from math import ceil
from pathlib import Path
from typing import Any

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins import text_proto
from cluster_serving.launcher.origins.fields import NO_KEY, Fields
from cluster_serving.launcher.origins.taken import Source, Taken, numbered, tree

EXPECTED = "a model folder of Triton, config.pbtxt and 1/"

_CONFIG = "config.pbtxt"
_FILES = ("model.onnx", "model.pt", "model.xml", "model.savedmodel", "model.plan", "model.py", "xgboost.json")
_REFUSED = {
    "tensorrt": "a TensorRT plan fits one kind of GPU: serve the ONNX file that it was built from",
    "python": "its model.py is not run: move the code into a handler (cluster-serving-init --handler)",
    "ensemble": "take over its models one by one, and call them from a handler (docs/how-to/handlers.md)",
    "vllm": "a handler generates text here (docs/how-to/handlers.md)",
}
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


def read(path: Path) -> Taken | None:
    """Return the model of a folder; None if it is not one of Triton's."""
    folder = _model_folder(path)
    if folder is None:
        return None
    config = Fields(_config(folder), repeated=True)
    kind = str(config.take("backend") or config.take("platform") or "")
    config.take("platform")
    for refused, remedy in _REFUSED.items():
        if kind.startswith(refused):
            raise LaunchError(f"{folder} is a model of Triton's {kind}: {remedy}")
    taken = Taken(f"the Triton model {folder}")
    taken.name(str(config.take("name") or folder.name))
    _take_parameters(taken, config, kind)
    kind = str(_parameter(config, "model_type") or kind)
    named = str(config.take("default_model_filename") or "")
    for version in numbered(folder):
        taken.files |= _files(version, named, kind)
    _take_batches(taken, config)
    _take_instances(taken, config.parts("instance_group"))
    _take_ports(taken, config)
    _take_versions(taken, config)
    taken.left += config.left(_CONFIG)
    return taken


def _model_folder(path: Path) -> Path | None:
    if not path.is_dir() or _is_model(path):
        return path if path.is_dir() else None
    models = sorted(folder for folder in path.iterdir() if folder.is_dir() and _is_model(folder))
    if len(models) > 1:
        raise LaunchError(f"{path} holds {', '.join(one.name for one in models)}; each becomes a job: name one of them")
    return models[0] if models else None


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
    if not ours or saved.is_dir() or not own or Path(own).suffix == Path(ours).suffix != ".json":
        return files
    # Known here by the end of its name.
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
    if values.get("predict_proba") == "true":
        taken.keys["outputs"] = "probabilities"
    elif values.get("output_class") == "true":
        taken.keys["outputs"] = "label"
    for part in config.parts("parameters"):
        key = part.take("key")
        if key not in known:
            value = part.part("value").take("string_value")
            taken.left.append(f"the parameter {key} ({value}) of {_CONFIG}: {NO_KEY}")


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
        counts = [(group.take("count") or 1) * (len(own) or 1) for group, own in zip(groups, gpus, strict=True)]
        taken.keys["modelParallelism"] = sum(counts)


def _take_ports(taken: Taken, config: Fields) -> None:
    inputs, outputs = config.parts("input"), config.parts("output")
    dims = [port.every("dims") for port in inputs]
    if inputs and all(name.endswith(".pt") for name in taken.files):
        # TorchScript tells no shapes. The dims of a model with batches are those of a record.
        has_batch = not config.take("max_batch_size")
        taken.keys["inputShapes"] = [sizes[1:] if has_batch else sizes for sizes in dims]
        taken.left.append("the names of the inputs: they are those of forward's arguments, or counted by position")
    versions = sorted({path.split("/")[0] for path in taken.files}, key=int)
    folders = " and ".join(f"model/{version}/" for version in versions)
    for file in filter(None, (port.take("label_filename") for port in outputs)):
        taken.left.append(f"{file}: copy it into {folders}, and set postProcessing: topN(3) | labels({file})")
    for port in (*inputs, *outputs):
        name = port.take("name")
        port.take("data_type"), port.every("dims")
        if "reshape" in port:
            shape = port.part("reshape").every("shape")
            taken.left.append(
                f"reshape of {name!r} in {_CONFIG}: clients send, and get, the shape of the model's own: {shape}"
            )


def _take_versions(taken: Taken, config: Fields) -> None:
    policy = config.part("version_policy")
    wanted = policy.part("specific").every("versions")
    several = (policy.part("latest").take("num_versions") or 1) > 1
    kept = [name for name in ("specific", "all") if name in policy]
    policy.part("all")
    if len(wanted) == 1:
        taken.keys["modelVersion"] = wanted[0]
    elif kept or several:
        taken.left.append("version_policy: the latest is served, and a second one beside it as a canary or shadow")
