"""TorchServe: an archive `*.mar`, as torch-model-archiver writes it, or its content in a folder (`no-archive`)."""

import json
import zipfile
from functools import partial
from pathlib import Path

import yaml

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins import several
from cluster_serving.launcher.origins.fields import FACT, Fields
from cluster_serving.launcher.origins.taken import REQUIREMENTS, Source, Taken, below, external_data, mapping, member

EXPECTED = "a *.mar of TorchServe, or a folder of such"

_MANIFEST = "MAR-INF/MANIFEST.json"
_PROPERTIES = "config.properties"
_MOST_BYTES, _MOST_FILES = 100 << 30, 10_000
_REMEDY = (
    "save the model as TorchScript where it was trained, torch.jit.trace(model.eval(), example).save('model/model.pt'),"
    " and put the code around it into model/handler.py (cluster-serving-init --handler)"
)
_KEYS = {"maxWorkers": "modelParallelism", "batchSize": "maxBatchSize", "maxBatchDelay": "batchTimeout"}
_KEYS |= {"responseTimeout": "inferenceTimeout", "jobQueueSize": "maxQueueLength"}
_FACTS = ("archiverVersion", "createdOn", "description", "implementationVersion", "modelServerVersion", "runtime")
_HANDLER = "the code of a handler reads it: model/handler.py gets it from a file of its own"
_DISTRIBUTED = "a model that several processes compute together is loaded in a handler"
_WAYS = {
    "handler": _HANDLER,
    "pt2": "serve a program of torch.export, model.pt2, or TorchScript",
    "parallelType": _DISTRIBUTED,
    "parallelLevel": _DISTRIBUTED,
    "torchrun": _DISTRIBUTED,
    "deepspeed": _DISTRIBUTED,
    "pippy": _DISTRIBUTED,
    "startupTimeout": "startTimeout is the time for the start of a job",
    "clientTimeoutInMills": "requestDeadline: a request that is late is answered with an error",
    "useJobTicket": "maxQueueLength limits the requests that wait",
    "continuousBatching": "a handler answers a request in pieces (docs/how-to/handler-models.md)",
    "asyncCommunication": "a handler answers a request in pieces (docs/how-to/handler-models.md)",
    "maxRetryTimeoutInSec": "Flink starts a job again that fails (docs/explanation/failures.md)",
    "parallelLoad": "slots load their models at the same time",
    **dict.fromkeys(
        ("sequenceBatching", "maxSequenceJobQueueSize", "maxNumSequence", "sequenceMaxIdleMSec", "sequenceTimeoutMSec"),
        "a job keeps no state between requests: clients send a whole sequence, or a handler keeps it",
    ),
}
_OF_MANIFEST = {"model.extraFiles": _HANDLER, "model.sourceVocab": _HANDLER, "engine": FACT}
_OF_SERVER = {
    "batch_size": "maxBatchSize",
    "max_batch_delay": "batchTimeout",
    "job_queue_size": "maxQueueLength",
    "default_response_timeout": "inferenceTimeout, in seconds",
    "default_workers_per_model": "modelParallelism",
    "default_startup_timeout": "startTimeout",
    "max_request_size": "maxRequestBytes",
    "number_of_gpu": "device",
    "model_store": "modelPath",
    "install_py_dep_per_model": REQUIREMENTS,
    "enable_metrics_api": "the front end has /metrics for Prometheus (docs/how-to/monitoring.md)",
    "model_snapshot": "a snapshot has the models with their settings: set the keys of each in config.yaml",
}
_MOST_NAMED = 20
_IMAGES = {
    "imageColor": "RGB",
    "imageShortestEdge": 256,
    "imageResample": "bilinear",
    "imageCrop": "224,224",
    "imageScale": 1 / 255,
    "imageMean": [0.485, 0.456, 0.406],
    "imageStd": [0.229, 0.224, 0.225],
    "inputShapes": [[3, 224, 224]],
}
"""What the handlers of TorchServe do with an image."""


def read(path: Path) -> Taken | None:
    """Return the model of an archive, or those of a folder of archives; None if the path is neither."""
    if not path.is_dir() or (path / _MANIFEST).is_file():
        is_archive = path.is_dir() or path.suffix == ".mar"
        return _read(path) if is_archive else None
    archives = sorted(path.glob("*.mar"))
    # Without archives, a model is in a folder (`no-archive`).
    archives += sorted(folder.parent.parent for folder in path.glob(f"*/{_MANIFEST}"))
    if not archives:
        return None
    readers = {archive.name: partial(_read, archive) for archive in archives}
    taken = several.take(f"the model store {path}", path.resolve().name, readers)
    taken.left += several.unread(path, {*readers, _PROPERTIES})
    if (path / _PROPERTIES).is_file():
        taken.left += _left_of_server(path / _PROPERTIES)
    return taken


def _left_of_server(file: Path) -> list[str]:
    """Return lines for the options of the server, those of its models one by one."""
    lines = (line.partition("=") for line in file.read_text("utf8", errors="replace").splitlines() if "=" in line)
    options = Fields({name.strip(): value.strip() for name, _, value in lines if not name.lstrip().startswith("#")})
    left = []
    try:
        models = json.loads(options.take("models", "{}").replace("\\", ""))
        for name, versions in models.items():
            for version, values in versions.items():
                shown = ", ".join(f"{_KEYS.get(key, key)}: {value}" for key, value in values.items() if key in _KEYS)
                left.append(f"{name} {version} in models of {file.name}: set {shown or 'nothing'}")
    except (ValueError, AttributeError):
        left.append(f"models of {file.name}, which is no JSON of models")
    return left + options.left(
        file.name, "the section http, and the keys of config.yaml, have such options", _OF_SERVER
    )


def _read(path: Path) -> Taken:
    root = path if path.is_dir() else _archive(path)
    manifest = _manifest(root)
    model = manifest.part("model")
    file, code, handler = (str(model.take(name) or "") for name in ("serializedFile", "modelFile", "handler"))
    if code or not file:
        raise LaunchError(f"{path} needs the code in {code or 'its handler'}, not run here: {_REMEDY}")
    weights = member(root, file)
    if file.endswith((".pt", ".pth")) and not is_torchscript(weights):
        raise LaunchError(f"{path} holds {file}, which is a pickle and not TorchScript: {_REMEDY}")
    taken = Taken(f"the TorchServe archive {path}", {weights.name: weights})
    taken.files |= external_data(weights, root)
    taken.name(str(model.take("modelName") or path.stem))
    _take_handler(taken, root, handler)
    settings, requirements = str(model.take("configFile") or ""), str(model.take("requirementsFile") or "")
    if settings:
        _take_settings(taken, Fields(mapping(member(root, settings), yaml.safe_load)), settings)
    if requirements:
        taken.left.append(REQUIREMENTS)
    _name_others(taken, root, {_MANIFEST, file, settings, requirements, "index_to_name.json"})
    taken.left += model.leave(_MANIFEST, FACT, "modelVersion", "description")
    taken.left += manifest.leave(_MANIFEST, FACT, *_FACTS)
    taken.left += manifest.left(_MANIFEST, ways=_OF_MANIFEST)
    return taken


def _name_others(taken: Taken, root: Source, known: set[str]) -> None:
    """Name the files that stay behind: those of the handler, such as its code and its `--extra-files`."""
    names = sorted(name for name, _ in below(root) if name not in known and name not in taken.files)
    if names:
        shown = ", ".join(names[:_MOST_NAMED]) + (
            f" and {len(names) - _MOST_NAMED} more" if names[_MOST_NAMED:] else ""
        )
        taken.left.append(f"{shown}: files for the code of the handler; copy what model/handler.py needs into model/")


def is_torchscript(file: Source) -> bool:
    """Return True for a file of TorchScript, which has its code beside the weights; it is not loaded."""
    try:
        with file.open("rb") as opened, zipfile.ZipFile(opened) as packed:
            return any("/code/" in name for name in packed.namelist())
    except zipfile.BadZipFile:
        return False


def _archive(path: Path) -> zipfile.Path:
    try:
        packed = zipfile.ZipFile(path)
    except zipfile.BadZipFile:
        raise LaunchError(
            f"{path} is not a ZIP archive, or it is cut off; unpack one of tgz, and name its folder"
        ) from None
    entries = packed.infolist()
    if len(entries) > _MOST_FILES or sum(entry.file_size for entry in entries) > _MOST_BYTES:
        raise LaunchError(f"{path} holds more than {_MOST_FILES} files or {_MOST_BYTES >> 30} GiB")
    for entry in entries:
        if entry.filename.startswith("/") or ".." in entry.filename.split("/"):
            raise LaunchError(f"{path} is refused: its entry {entry.filename!r} lies outside of the archive")
    return zipfile.Path(packed)


def _manifest(root: Source) -> Fields:
    try:
        manifest = Fields(json.loads(member(root, _MANIFEST).read_text(encoding="utf8")))
        if [*manifest.part("model")]:
            return manifest
    except (ValueError, AttributeError):
        pass
    raise LaunchError(f"{root}: {_MANIFEST} names no model; pack it again with torch-model-archiver")


def _take_handler(taken: Taken, root: Source, handler: str) -> None:
    names = root / "index_to_name.json"
    labels = mapping(names, json.loads) if names.is_file() else {}
    if labels:
        taken.labels({number: name[-1] if isinstance(name, list) else name for number, name in labels.items()})
    if handler in ("image_classifier", "image_segmenter"):
        taken.keys |= _IMAGES
        taken.left.append(
            f"how {handler} rounds the place of its crop: torchvision may cut one pixel further from the start of the "
            "longer edge, where its length is odd"
        )
        if handler == "image_segmenter":
            taken.left.append(
                "what image_segmenter makes of the outputs, which versions of TorchServe do in different ways: a job "
                "answers with the outputs of the model; filters of postProcessing, or a handler, make more of them"
            )
    else:
        taken.left.append(
            f"the handler {handler}, whose code is not copied: clients send the model's tensors, or move "
            "the code into model/handler.py (cluster-serving-init --handler)"
        )
    if handler == "image_classifier":
        best = f"softmax | topN({min(5, len(labels) or 5)})"
        taken.keys["postProcessing"] = f"{best} | labels(labels.txt)" if labels else best


def _take_settings(taken: Taken, settings: Fields, file: str) -> None:
    values = {key: settings.take(name) for name, key in _KEYS.items()}
    taken.keys |= {key: value for key, value in values.items() if value is not None}
    if settings.take("deviceType") == "gpu":
        numbers = settings.every("deviceIds")
        taken.keys["device"] = ",".join(f"cuda:{number}" for number in numbers) or "cuda"
    why = "the number of slots is modelParallelism; the section autoscale changes it with the load"
    taken.left += settings.leave(file, why, "minWorkers")
    taken.left += settings.left(file, ways=_WAYS)
