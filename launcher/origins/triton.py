"""Triton: the folder of a model, `config.pbtxt` and numbered versions; or a repository of one model."""

from math import ceil
from pathlib import Path
from typing import Any

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins import text_proto
from cluster_serving.launcher.origins.taken import Source, Taken, numbered, tree
from cluster_serving.launcher.origins.text_proto import Message, one

EXPECTED = "a model folder of Triton, config.pbtxt and 1/"

_CONFIG = "config.pbtxt"
_FILES = ("model.onnx", "model.pt", "model.xml", "model.savedmodel", "model.plan", "model.py", "xgboost.json")
_REFUSED = {
    "tensorrt": "a TensorRT plan fits one kind of GPU: serve the ONNX file that it was built from",
    "python": "its model.py is not run: move the code into a handler (cluster-serving-init --handler)",
    "ensemble": "take over its models one by one, and call them from a handler (docs/how-to/handlers.md)",
    "vllm": "a handler generates text here (docs/how-to/handlers.md)",
}
_KNOWN = {"name", "platform", "backend", "max_batch_size", "input", "output", "instance_group", "dynamic_batching"}
_KNOWN |= {"version_policy", "default_model_filename", "parameters"}
_OF_BATCHING = {"max_queue_delay_microseconds", "preferred_batch_size", "default_queue_policy"}


def read(path: Path) -> Taken | None:
    """Return the model of a folder; None if it is not one of Triton's."""
    folder = _model_folder(path)
    if folder is None:
        return None
    config = _config(folder)
    kind = str(one(config, "backend") or one(config, "platform") or "")
    for refused, remedy in _REFUSED.items():
        if kind.startswith(refused):
            raise LaunchError(f"{folder} is a model of Triton's {kind}: {remedy}")
    taken = Taken(f"the Triton model {folder}")
    taken.name(str(one(config, "name") or folder.name))
    for version in numbered(folder):
        taken.files |= _files(version)
    _take_batches(taken, config)
    _take_instances(taken, config.get("instance_group", []))
    _take_ports(taken, config)
    _take_versions(taken, one(config, "version_policy") or {})
    taken.left += [f"{name} of {_CONFIG}: no key of config.yaml means this" for name in sorted(config.keys() - _KNOWN)]
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


def _config(folder: Path) -> Message:
    file = folder / _CONFIG
    try:
        return text_proto.parse(file.read_text("utf8")) if file.is_file() else {}
    except ValueError as error:
        raise LaunchError(f"{file} is not a protobuf message as text: {error}") from None


def _files(version: Path) -> dict[str, Source | bytes]:
    """Return the files of a version; a SavedModel is in the folder of its version itself."""
    saved = version / "model.savedmodel"
    return tree(saved if saved.is_dir() else version, f"{version.name}/")


def _take_batches(taken: Taken, config: Message) -> None:
    batching = one(config, "dynamic_batching") or {}
    policy = one(batching, "default_queue_policy") or {}
    microseconds = {
        "batchTimeout": one(batching, "max_queue_delay_microseconds"),
        "requestDeadline": one(policy, "default_timeout_microseconds"),
    }
    numbers = {"maxBatchSize": one(config, "max_batch_size"), "maxQueueLength": one(policy, "max_queue_size")}
    numbers |= {key: ceil(value / 1000) for key, value in microseconds.items() if value}
    taken.keys |= {key: value for key, value in numbers.items() if value}
    others = sorted(batching.keys() - _OF_BATCHING)
    taken.left += [f"dynamic_batching.{name} of {_CONFIG}: no key of config.yaml means this" for name in others]


def _take_instances(taken: Taken, groups: list[Message]) -> None:
    gpus = sorted({number for group in groups for number in group.get("gpus", [])})
    if any(one(group, "kind") == "KIND_GPU" for group in groups):
        taken.keys["device"] = ",".join(f"cuda:{number}" for number in gpus) or "cuda"
    if groups:
        counts = [(one(group, "count") or 1) * (len(group.get("gpus", [])) or 1) for group in groups]
        taken.keys["modelParallelism"] = sum(counts)


def _take_ports(taken: Taken, config: Message) -> None:
    inputs: list[dict[str, Any]] = config.get("input", [])
    if inputs and all(name.endswith(".pt") for name in taken.files):
        # TorchScript tells no shapes. The dims of a model with batches are those of a record.
        first = 0 if one(config, "max_batch_size") else 1
        taken.keys["inputShapes"] = [port.get("dims", [])[first:] for port in inputs]
        taken.left.append("the names of the inputs: they are those of forward's arguments, or counted by position")
    versions = sorted({path.split("/")[0] for path in taken.files}, key=int)
    folders = " and ".join(f"model/{version}/" for version in versions)
    for file in filter(None, (one(port, "label_filename") for port in config.get("output", []))):
        taken.left.append(f"{file}: copy it into {folders}, and set postProcessing: topN(3) | labels({file})")


def _take_versions(taken: Taken, policy: Message) -> None:
    wanted = (one(policy, "specific") or {}).get("versions", [])
    if len(wanted) == 1:
        taken.keys["modelVersion"] = wanted[0]
    elif policy.keys() - {"latest"}:
        taken.left.append("version_policy: the latest is served, and a second one beside it as a canary or shadow")
