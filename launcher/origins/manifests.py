"""Manifests of Kubernetes: files of YAML with an object in each document."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import yaml

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins import several
from cluster_serving.launcher.origins.fields import FACT, Fields
from cluster_serving.launcher.origins.taken import Taken

POD = "the manifest of a job has its own pods: docs/how-to/deploy/kubernetes.md"
"""What is said of resources, volumes, accounts and the like."""

REPLICAS = "copies are slots here: modelParallelism, or the section autoscale, sets their number"
EXPLAINER = "no explanations are computed here; a handler may (docs/how-to/handlers.md)"
PAYLOADS = "the section payloadLog of config.yaml logs requests and answers"

_SUFFIXES = (".yaml", ".yml", ".json")
_MOST_BYTES = 1 << 22
_GROUPS = ("serving.kserve.io/", "machinelearning.seldon.io/", "mlops.seldon.io/")
_SERVER = "a job is server and runtime itself"
_GRAPH = "call its models from a handler (docs/how-to/handlers.md)"
_SHARE = "a canary or a shadow is started with cluster-serving-cli update (docs/how-to/changes.md)"
_OTHERS = {
    "Pipeline": _GRAPH,
    "InferenceGraph": _GRAPH,
    "Experiment": _SHARE,
    "LLMInferenceService": "a handler generates texts (docs/how-to/handler-models.md)",
    **dict.fromkeys(("ServingRuntime", "ClusterServingRuntime", "Server", "ServerConfig", "SeldonRuntime"), _SERVER),
    **dict.fromkeys(("Secret", "ServiceAccount"), "docs/how-to/model-stores.md says where a job looks for credentials"),
}
"""Kind of an object beside a model → what to do instead."""

_FACTS = (
    *("namespace", "labels", "creationTimestamp", "generation", "resourceVersion", "uid", "managedFields"),
    *("finalizers", "ownerReferences", "generateName", "selfLink"),
)


def objects(path: Path) -> list[Fields]:
    """Return the objects of a file, or of the files of a folder; none if they hold something else.

    Raises:
        LaunchError: If a file with the words of a manifest is no YAML.
    """
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return [found for file in files if _may_be_one(file) for found in _objects(file)]


def models(path: Path, known: str, is_model: Callable[[Fields], bool], read: Callable[[Fields], Taken]) -> Taken | None:
    """Return the models that the objects of a file or folder describe; None if none does.

    Args:
        path: The file or folder.
        known: Kinds of objects that describe a model, for messages.
        is_model: Tells whether an object does.
        read: What reads one.

    Raises:
        LaunchError: As for `objects` and `several.take`.
    """
    found = objects(path)
    described_here = [each for each in found if is_model(each)]
    if not described_here:
        return None
    readers: dict[str, Callable[[], Taken]] = {}
    for number, each in enumerate(described_here, 1):
        place = described(each)
        # Two namespaces may have one of the same name.
        readers[place if place not in readers else f"{place} (number {number})"] = partial(read, each)
    taken = several.take(f"the models of {path}", path.resolve().stem, readers)
    taken.left += [other(each, known) for each in found if each not in described_here]
    return taken


def names(path: Path) -> set[str]:
    """Return the names of the files in a folder that have objects."""
    return {file.name for file in path.iterdir() if _may_be_one(file) and [*_objects(file)]}


def _may_be_one(file: Path) -> bool:
    return file.suffix in _SUFFIXES and file.is_file() and file.stat().st_size <= _MOST_BYTES


def _objects(file: Path) -> Iterable[Fields]:
    text = file.read_text("utf8", errors="replace")
    if "apiVersion" not in text or "kind" not in text:
        return
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise LaunchError(f"{file} cannot be read: {' '.join(str(error).split())}") from None
    for document in documents:
        is_list = isinstance(document, dict) and document.get("kind") == "List"
        for each in document.get("items") or [] if is_list else [document]:
            if isinstance(each, dict) and "apiVersion" in each and "kind" in each:
                yield Fields(each)


def described(each: Fields) -> str:
    """Return kind and name of an object, for messages."""
    return f"{each.take('kind')} {each.part('metadata').take('name') or 'without a name'}"


def metadata_left(each: Fields) -> list[str]:
    """Return lines for what an object says about itself, and about its state."""
    each.take("apiVersion"), each.take("kind")
    metadata = each.part("metadata")
    metadata.take("name")
    left = metadata.leave("metadata", FACT, *_FACTS)
    # Their values may be a manifest each.
    annotations = metadata.part("annotations")
    left += [f"the annotation {name}: {POD}" for name in annotations.unread()]
    annotations.left("")
    return left + each.leave("the manifest", FACT, "status")


def other(each: Fields, known: str) -> str:
    """Return the line for an object that describes no model; `known` has what does."""
    way = _OTHERS.get(str(each.take("kind")), f"not taken over, which {known} alone is; {_SERVER}")
    return f"{described(each)}: {way}"


def refuse(path: Path, known: str) -> None:
    """Refuse a file or folder if it has objects, and no object describes a model.

    Raises:
        LaunchError: With what each object is, and the kinds that are known.
    """
    found = objects(path)
    if any(str(each.take("apiVersion")).startswith(_GROUPS) for each in found):
        raise LaunchError(
            f"{path} describes no model, as {known} does; {'; '.join(other(each, known) for each in found)}"
        )
