"""Several models of another server: they become a folder of models, which one job serves."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cluster_serving.launcher.config.repository import OWN_KEYS
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins import served
from cluster_serving.launcher.origins.taken import Taken

_ONE_COPY = "modelParallelism"
_WATCH = "watchModel"


def take(origin: str, name: str, readers: Mapping[str, Callable[[], Taken]]) -> Taken:
    """Return the models together, each in a subfolder with keys of its own; those that cannot be served are named.

    One model alone becomes that of a job.

    Args:
        origin: The models in the words of their server, for messages.
        name: Name of the job, unless a model has it.
        readers: Place of each model, for messages → what reads it.

    Raises:
        LaunchError: If no model can be served.
    """
    if len(readers) == 1:
        return next(iter(readers.values()))()
    models: dict[str, Taken] = {}
    left: list[str] = []
    for place, read in readers.items():
        try:
            _add(models, read(), place)
        except LaunchError as error:
            left.append(f"the model {place}: {error}")
    if not models:
        raise LaunchError(f"{origin}: none of its {len(readers)} models can be served: {'; '.join(left)}")
    together = Taken(origin, left=left)
    together.name(name)
    if together.keys["jobName"] in models:
        together.name(f"{name}-models")
    together.keys |= _shared(list(models.values()))
    lines: dict[str, list[str]] = {}
    for model, taken in models.items():
        together.files |= {f"{model}/{file}": source for file, source in taken.files.items()}
        together.own[model] = {key: value for key, value in taken.keys.items() if key in OWN_KEYS}
        for line in (*taken.left, *_keys_left(taken, together.keys)):
            lines.setdefault(line, []).append(model)
    together.left += [f"{', '.join(names)}: {line}" for line, names in lines.items()]
    if any(_WATCH in taken.keys for taken in models.values()):
        together.keys[_WATCH] = True
    return together


def _add(models: dict[str, Taken], taken: Taken, place: str) -> None:
    name = taken.keys["jobName"]
    if "modelPath" in taken.keys:
        own = f"a folder of models holds files: give it a job of its own, with modelPath: {taken.keys['modelPath']}"
        raise LaunchError("; ".join([own, *taken.left]))
    if taken.own:
        raise LaunchError("it has several models itself: take its folder over, cluster-serving-init --from FOLDER")
    if not taken.files:
        raise LaunchError("; ".join(taken.left) or "it has no files")
    if name.isdecimal():
        raise LaunchError(f"a folder of models would read {name} as a version: give it another name, or its own job")
    if name in models:
        raise LaunchError(f"{name} is the name of another model, too: rename one of them, or give it a job of its own")
    models[name] = served.check(taken)


def _shared(models: list[Taken]) -> dict[str, Any]:
    """Return the keys of a job that all models have with the same value."""
    first = {
        key: value for key, value in models[0].keys.items() if key not in (*OWN_KEYS, "jobName", _ONE_COPY, _WATCH)
    }
    return {key: value for key, value in first.items() if all(taken.keys.get(key) == value for taken in models)}


def _keys_left(taken: Taken, shared: Mapping[str, Any]) -> list[str]:
    left = []
    for key, value in taken.keys.items():
        if key in (*OWN_KEYS, *shared, _WATCH) or (key == _ONE_COPY and value == 1):
            continue
        why = "the slots of a job serve all models" if key == _ONE_COPY else "a key of the job, so of all its models"
        left.append(f"{key}: {value}, {why}: give this model a job of its own, or change config.yaml")
    return left


def unread(folder: Path, known: set[str]) -> list[str]:
    """Return a line with the entries of a folder of models that were not read; no entries, no line."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.name not in known and entry.name[0] != ".")
    return [f"{', '.join(names)} in {folder}: not read; copy what a handler needs from there"] if names else []
