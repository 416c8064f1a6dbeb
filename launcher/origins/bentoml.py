"""BentoML: a model of a model store, the store itself, a bento, or the folder of a `bentofile.yaml`."""

import os
import zipfile
from collections.abc import Callable
from functools import partial
from io import BytesIO
from math import ceil
from pathlib import Path

import yaml

from cluster_serving.job.models.folder import holds_model
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins import hugging_face, manifests, mlflow, several, torchserve
from cluster_serving.launcher.origins.fields import FACT, IN_MODEL, Fields
from cluster_serving.launcher.origins.taken import Source, Taken, external_data, mapping, tree

EXPECTED = "a model or bento of BentoML, model.yaml, bento.yaml or bentofile.yaml"

_MODEL, _BENTO, _BENTOFILE, _LATEST = "model.yaml", "bento.yaml", "bentofile.yaml", "latest"
_SAVED = "saved_model"
_FACTS = (
    *("name", "version", "bentoml_version", "creation_time", "api_version", "context", "labels", "metadata"),
    *("description", "size_bytes"),
)
_NATIVE = {
    ".ubj": "model.ubj",
    ".txt": "model.txt",
    ".cbm": "model.cbm",
    ".onnx": "model.onnx",
    ".keras": "model.keras",
}
_NATIVE |= {".skops": "model.skops", ".h5": "model.h5"}
"""Suffix of `saved_model` → its name here."""

_OF_SAVED_MODEL = ("saved_model.pb", "variables/", "assets/", "fingerprint.pb", "keras_metadata.pb")
_OF_KERAS = ("config.json", "metadata.json", "model.weights.h5")
"""A model of Keras as a folder, which the same files in an archive are as `*.keras`."""

_REMEDIES = {
    "xgboost": "save it with model.save_model('model/model.ubj')",
    "lightgbm": "save it with model.booster_.save_model('model/model.txt')",
    "sklearn": "save it with skops.io.dump(model, 'model/model.skops')",
    "pytorch": "save it with torch.jit.trace(model.eval(), example).save('model/model.pt')",
    "pytorch_lightning": "save it with torch.jit.trace(model.eval(), example).save('model/model.pt')",
}
_OPTIONS = "the keys device and threadPerModel say where it is computed, and with how many threads"
_SIGNATURES = (
    "a job calls the model itself, and shares a call where that changes no answer (docs/explanation/shared-calls.md)"
)
_SERVER = "docs/reference/config.md has the sections http and payloadLog, and the keys of a job"
_SCHEMA = "the model tells its own inputs, which the front end has at /openapi.json"
_SERVICE = "the code of the service, which is not run: move it into a handler (cluster-serving-init --handler)"


def read(path: Path) -> Taken | None:
    """Return the models of a folder; None if BentoML has not written it."""
    if not path.is_dir():
        if path.suffix in (".bento", ".bentomodel"):
            raise LaunchError(f"{path} is an archive: unpack it with tar -xf {path} -C FOLDER, and name the folder")
        return None
    if _is_model(path):
        return _read_model(path)
    for file in (_BENTO, _BENTOFILE):
        if (path / file).is_file():
            return _read_bento(path, file)
    bentos = [folder for folder in _folders(path) if (folder / _BENTO).is_file()]
    if bentos:
        return _read_latest(path, _BENTO, partial(_read_bento, file=_BENTO))
    if (path / _LATEST).is_file() or any(map(_is_model, _folders(path))):
        return _read_name(path, "")
    names = [folder for folder in _folders(path) if any(map(_is_model, _folders(folder)))]
    if not names:
        return None
    readers = {folder.name: partial(_read_name, folder, "") for folder in names}
    taken = several.take(f"the model store {path}", path.resolve().name, readers)
    taken.left += several.unread(path, set(readers))
    return taken


def _folders(path: Path) -> list[Path]:
    return sorted(folder for folder in path.iterdir() if folder.is_dir())


def _is_model(folder: Path) -> bool:
    return (folder / _MODEL).is_file() and "bentoml_version" in (folder / _MODEL).read_text("utf8", errors="replace")


def _read_name(folder: Path, version: str) -> Taken:
    """Return a version of a model; the latest also names the others."""
    if version not in ("", _LATEST):
        return _read_model(_version(folder, version))
    return _read_latest(folder, _MODEL, _read_model)


def _read_latest(folder: Path, file: str, read_version: Callable[[Path], Taken]) -> Taken:
    chosen = _version(folder, "", file)
    taken = read_version(chosen)
    others = [one.name for one in _folders(folder) if (one / file).is_file() and one.name != chosen.name]
    if others:
        taken.left.append(
            f"{', '.join(others)} of {folder}: older than the latest; the folder of a version is taken, too"
        )
    return taken


def _version(folder: Path, version: str, described: str = _MODEL) -> Path:
    """Return the folder of a version of a model or bento; the one that `latest` names, unless it is given."""
    file = folder / _LATEST
    named = version if version not in ("", _LATEST) else file.read_text("utf8").strip() if file.is_file() else ""
    found = [one for one in _folders(folder) if (one / described).is_file()] if folder.is_dir() else []
    if not named and len(found) == 1:
        return found[0]
    chosen = next((one for one in found if one.name == named), None)
    if chosen is None:
        names = ", ".join(one.name for one in found) or "none"
        raise LaunchError(f"{folder} has no version {named or 'that is the latest'}; found: {names}")
    return chosen


def _read_bento(path: Path, file: str) -> Taken:
    fields = _filled(path / file)
    tags = []
    for entry in fields.every("models"):
        part = Fields(entry) if isinstance(entry, dict) else Fields({"tag": entry})
        tags.append(str(part.take("tag") or part.take("filter") or ""))
        part.take("module"), part.take("creation_time"), part.take("alias")
    name = str(fields.take("name") or path.resolve().name)
    if not tags:
        raise LaunchError(
            f"{path / file} names no models of a store: put the files that {fields.take('service')} loads into model/, "
            "and move its code into a handler (cluster-serving-init --handler)"
        )
    readers = {tag: partial(_read_tag, path, tag) for tag in tags}
    taken = several.take(f"the models of {path / file}", name, readers)
    taken.left.append(f"service of {file}, {fields.take('service')}: {_SERVICE}")
    taken.left += fields.leave(file, FACT, *_FACTS)
    _take_services(taken, fields, file)
    why = "a job has its own image and packages (docs/how-to/deploy/kubernetes.md)"
    taken.left += fields.leave(file, why, "python", "docker", "conda", "image", "envs", "include", "exclude", "args")
    why = "docs/reference/config.md has the keys of a job, such as maxBatchSize, batchTimeout and requestDeadline"
    taken.left += fields.left(file, why)
    return taken


def _take_services(taken: Taken, fields: Fields, file: str) -> None:
    """Take the options of the only service: its workers, GPU and time limit."""
    services = fields.parts("services")
    for service in services:
        service.take("name"), service.take("service"), service.take("models"), service.take("dependencies")
        config = service.part("config")
        if len(services) > 1:
            continue
        traffic = config.part("traffic")
        seconds, workers = traffic.take("timeout"), config.take("workers")
        if isinstance(seconds, int | float) and seconds > 0:
            taken.keys["requestDeadline"] = ceil(seconds * 1000)
        if isinstance(workers, int):
            taken.keys["modelParallelism"] = workers
        elif workers:
            taken.left.append(
                f"workers {workers} of {file}: modelParallelism, or the section autoscale, sets their number"
            )
        if config.part("resources").take("gpu"):
            taken.keys["device"] = "cuda"
        taken.left += config.part("resources").left(f"services.config.resources of {file}", manifests.POD)
        taken.left += traffic.left(f"services.config.traffic of {file}", "maxQueueLength limits the requests that wait")
        taken.left += config.left(f"services.config of {file}", _SERVER)
    taken.left += fields.leave(file, _SCHEMA, "schema", "entry_service")
    fields.take("spec")


def _filled(file: Path) -> Fields:
    """Return the fields of a file that have a value: BentoML writes all of them."""
    return Fields({name: value for name, value in mapping(file, yaml.safe_load).items() if value not in ({}, [], "")})


def _read_tag(path: Path, tag: str) -> Taken:
    name, _, version = tag.partition(":")
    home = Path(os.environ.get("BENTOML_HOME") or Path.home() / "bentoml")
    stores = (path / "models", path.resolve().parent.parent.parent / "models", home / "models")
    for store in stores:
        if name and name not in (".", "..") and "/" not in name and (store / name).is_dir():
            return _read_name(store / name, version)
    raise LaunchError(f"no store holds {tag!r}; looked into {', '.join(map(str, stores))} (BENTOML_HOME names another)")


def _read_model(path: Path) -> Taken:
    fields = _filled(path / _MODEL)
    module = str(fields.take("module") or "").rpartition(".")[2]
    name = str(fields.take("name") or path.resolve().parent.name)
    taken = _of_another(path, module) or Taken("", _files(path, module))
    taken.origin = f"the BentoML model {path}"
    taken.name(name)
    others = sorted(file for file in tree(path) if file.startswith("custom_objects"))
    if others:
        taken.left.append(f"{', '.join(others)}: a pickle, which is not run: {_SERVICE}")
    taken.left += fields.leave(_MODEL, _SIGNATURES, "signatures")
    taken.left += fields.leave(_MODEL, f"{IN_MODEL}; {_OPTIONS}", "options")
    taken.left += fields.leave(_MODEL, FACT, *_FACTS)
    taken.left += fields.left(_MODEL)
    return taken


def _of_another(path: Path, module: str) -> Taken | None:
    """Return a model that the store has as MLflow's or Hugging Face's folder; None if it is neither.

    Raises:
        LaunchError: If such a folder has no model that is served.
    """
    if (path / "mlflow_model").is_dir():
        found = mlflow.read(path / "mlflow_model")
    elif module in ("", "models", "transformers", "diffusers"):
        found = hugging_face.read(path)
    else:
        return None
    if found is None and module not in ("", "models"):
        raise LaunchError(f"{path} holds no model of {module} that is served: docs/reference/models.md has the formats")
    return found


def _files(path: Path, module: str) -> dict[str, Source | bytes]:
    """Return the files to serve of a model that one framework saved.

    Raises:
        LaunchError: If the model is a pickle or code.
    """
    if (path / "saved_model.pb").is_file():
        return {name: file for name, file in tree(path).items() if name.startswith(_OF_SAVED_MODEL)}
    saved = [file for file in sorted(path.iterdir()) if file.is_file() and file.stem == _SAVED]
    for file in saved:
        if module == "lightgbm" and file.suffix != ".pkl":
            # Its text, whatever the name says.
            return {"model.txt": file}
        if file.suffix in _NATIVE:
            return {_NATIVE[file.suffix]: file} | external_data(file, path)
        if module == "xgboost" and file.suffix == ".json":
            return {"model.json": file}
        if file.suffix in (".pt", ".pth") and torchserve.is_torchscript(file):
            return {"model.pt": file}
    if all((path / name).is_file() for name in _OF_KERAS):
        return {"model.keras": _packed(path)}
    if not saved and holds_model(path):
        return {name: file for name, file in tree(path).items() if name != _MODEL}
    found = ", ".join(sorted(name for name in tree(path) if name != _MODEL)[:20]) or "it is empty"
    what = f"a pickle or code ({saved[0].name}), which is not run" if saved else f"no file that is served ({found})"
    remedy = _REMEDIES.get(module, "docs/reference/models.md says what is served, and how to convert other models")
    raise LaunchError(f"{path} holds {what}: {remedy}")


def _packed(path: Path) -> bytes:
    content = BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in _OF_KERAS:
            archive.write(path / name, name)
    return content.getvalue()
