"""TensorFlow Serving: a base path, whose subfolders are versions of a SavedModel, or a file with several of them."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from cluster_serving.job.remote.url import is_url
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins import several, tensorflow_options, text_proto
from cluster_serving.launcher.origins.fields import FACT, Fields
from cluster_serving.launcher.origins.taken import Taken, numbered, take_versions, tree

EXPECTED = "a base path of TensorFlow Serving, 1/saved_model.pb, or its models.config"

_LIST = "model_config_list"
_CONFIG = "models.config"
_PARAMETERS = "batching_params.pbtxt"
_WARM_UP = "tf_serving_warmup_requests"
_EXTRA = "not read by a job; docs/reference/config.md has its keys"
_FLAGS = (
    "the options of tensorflow_model_server: max_batch_size is maxBatchSize here, batch_timeout_micros is batchTimeout "
    "in milliseconds, and inputs and outputs name the tensors of another signature than serving_default"
)


def read(path: Path) -> Taken | None:
    """Return the model of a base path or of a SavedModel alone, or those of a file; None if the path is neither."""
    if not path.is_dir():
        return _read_list(path)
    versions = [folder for folder in numbered(path) if (folder / "saved_model.pb").is_file()]
    if not versions and not (path / "saved_model.pb").is_file():
        return _read_list(path / _CONFIG) if (path / _CONFIG).is_file() else None
    taken = _read_versions(path, versions)
    taken.left = [_FLAGS, *taken.left, *(tensorflow_options.take([taken], path) if versions else [])]
    return taken


def _read_versions(path: Path, versions: list[Path]) -> Taken:
    taken = Taken(f"the SavedModel {path}")
    taken.name(path.resolve().name)
    if versions:
        # New versions are served as they come, as by that server.
        taken.keys["watchModel"] = True
    for folder in versions or [path]:
        files = tree(folder, f"{folder.name}/" if versions else "")
        extra = sorted(name for name in files if "assets.extra/" in name)
        taken.files |= {
            name: file for name, file in files.items() if name not in extra and not name.endswith(_PARAMETERS)
        }
        if any(name.endswith(_WARM_UP) for name in extra):
            taken.left.append(f"the warm-up requests of {folder}: a job computes records of its own at its start")
        taken.left += [f"{name} of {path}: {_EXTRA}" for name in extra if not name.endswith(_WARM_UP)]
    # Of several versions, the latest one counts.
    taken.left += tensorflow_options.take_own([taken], (versions or [path])[-1] / _PARAMETERS)
    return taken


def _read_list(file: Path) -> Taken | None:
    """Return the models that a file of the option `--model_config_file` names; None if the file is another one."""
    if file.suffix not in tensorflow_options.SUFFIXES or file.stat().st_size > tensorflow_options.MOST_BYTES:
        return None
    try:
        text = file.read_text("utf8")
        content = text_proto.parse(text) if _LIST in text or "custom_model_config" in text else {}
    except UnicodeDecodeError:
        return None
    except ValueError as error:
        raise LaunchError(f"{file} is not a protobuf message as text: {error}") from None
    if not content:
        return None
    models = Fields(content, repeated=True)
    listed = models.part(_LIST)
    entries = [Fields(entry, repeated=True) for entry in listed.every("config") if isinstance(entry, dict)]
    if not entries:
        raise LaunchError(f"{file} lists no models: expected {_LIST} with a config for each")
    names = [str(entry.take("name") or f"without a name, number {at}") for at, entry in enumerate(entries, 1)]
    for name in names:
        if names.count(name) > 1:
            raise LaunchError(f"{file} lists the model {name} {names.count(name)} times")
    options = Taken(f"the options beside {file}")
    beside = tensorflow_options.take([options], file.parent, file)
    readers = {
        name: partial(_read_listed, file, name, entry, options.keys) for name, entry in zip(names, entries, strict=True)
    }
    taken = several.take(f"the models of {file}", file.resolve().parent.name, readers)
    taken.left += [_FLAGS, *models.left(file.name)] if taken.own else [*models.left(file.name), _FLAGS]
    taken.left += beside
    return taken


def _read_listed(file: Path, name: str, entry: Fields, options: Mapping[str, Any]) -> Taken:
    platform = str(entry.take("model_platform", "tensorflow"))
    if platform != "tensorflow":
        raise LaunchError(f"{file} gives {name} the model_platform {platform}; tensorflow alone is known")
    path = _base_path(file, name, str(entry.take("base_path") or ""))
    versions = [folder for folder in numbered(path) if (folder / "saved_model.pb").is_file()]
    if not versions:
        raise LaunchError(f"{path} has no version of a SavedModel, such as 1/saved_model.pb")
    taken = _read_versions(path, versions)
    taken.keys = {**options, **taken.keys}
    taken.name(name)
    take_versions(
        taken, "model_version_policy", entry.part("model_version_policy"), [int(one.name) for one in versions]
    )
    if "modelVersion" in taken.keys:
        # One version is served for good.
        taken.keys.pop("watchModel")
    labels = {str(part.take("key")): part.take("value") for part in entry.parts("version_labels")}
    if labels:
        shown = ", ".join(f"{label} (version {number})" for label, number in labels.items())
        taken.left.append(f"version_labels {shown}: clients name the version, as in /versions/1")
    if "logging_config" in entry:
        taken.left.append("logging_config: the section payloadLog of config.yaml logs requests and answers")
        entry.take("logging_config")
    taken.left += entry.leave(file.name, FACT, "model_type")
    taken.left += entry.left(file.name, ways={"metadata": FACT})
    return taken


def _base_path(file: Path, name: str, named: str) -> Path:
    """Return the folder of a model: the path in a container is looked for beside the file, too."""
    if is_url(named):
        raise LaunchError(f"the base_path of {name} is an address: give it a job of its own, with modelPath: {named}/1")
    parts = PurePosixPath(named).parts
    if not parts or ".." in parts:
        raise LaunchError(f"the base_path of {name} is {named!r}; expected a path without ..")
    places = [Path(named), *(file.parent.joinpath(*parts[at:]) for at in range(named.startswith("/"), len(parts)))]
    for place in places:
        if place.is_dir():
            return place
    raise LaunchError(
        f"the base_path of {name}, {named}, does not exist: copy the versions of the model to {places[-1]}"
    )
