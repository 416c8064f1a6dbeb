"""MLServer, the server of Seldon Core: a folder with `model-settings.json`, or a folder of such folders."""

import json
from functools import partial
from math import ceil
from pathlib import Path, PurePosixPath

from cluster_serving.job.models.folder import holds_model
from cluster_serving.job.remote.url import is_url
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins import mlflow, several
from cluster_serving.launcher.origins.fields import FACT, IN_MODEL, Fields
from cluster_serving.launcher.origins.taken import Source, Taken, mapping, member, tree

EXPECTED = "a model of MLServer, model-settings.json"

_FILE, _SERVER_FILE = "model-settings.json", "settings.json"
_NAMES = {"LightGBMModel": "model.txt", "XGBoostModel": "model.ubj", "CatboostModel": "model.cbm"}
"""Class that loads a model → name of its file here, unless its own name tells the engine."""

_USUAL = ("model.ubj", "model.json", "model.bst", "model.txt", "model.cbm", "model.onnx")
_KNOWN = (".ubj", ".json", ".txt", ".cbm", ".onnx", ".skops")
_RUNTIMES = (*_NAMES, "SKLearnModel", "MLflowRuntime", "HuggingFaceRuntime", "OnnxModel")
"""Classes whose models are looked for; others are code."""
_EXPLAINS = {
    "AlibiExplainRuntime": "no explanations are computed here; a handler may (docs/how-to/handlers.md)",
    "AlibiDetectRuntime": "no drift or outliers are found here; the section payloadLog logs requests for that",
}
_CODE = "move its code into a handler (cluster-serving-init --handler)"
_PACKAGES = "a job has its own image and packages (docs/how-to/deploy/kubernetes.md)"
_CODECS = "clients send arrays, or the columns of a table by their names (docs/how-to/texts-and-tables.md)"
_WAYS = {
    "parameters.environment_tarball": _PACKAGES,
    "parameters.environment_path": _PACKAGES,
    "parameters.content_type": _CODECS,
    "parameters.format": _CODECS,
    "parameters.extra": "settings of the class that loads the model; docs/reference/config.md has the keys of a job",
    "cache_enabled": "equal requests are computed again; cache answers in the client, or before the front end",
    "metadata": FACT,
    **dict.fromkeys(
        (
            *("parameters.inference_pool_gid", "parameters.autogenerate_inference_pool_gid"),
            *("parameters.inference_pool_grouping", "parameters.auto_generate_inference_pool_gid"),
        ),
        "the processes of a job are its own",
    ),
}
_ANSWERS = {"LightGBMModel": "probabilities"} | dict.fromkeys(
    ("SKLearnModel", "XGBoostModel", "CatboostModel"), "label"
)
"""Class that loads a model → the output of a request that names no output."""
_REMEDIES = {
    "SKLearnModel": "save the model with skops.io.dump(model, 'model/model.skops')",
    "HuggingFaceRuntime": "export the model with optimum-cli, and take that folder over",
}
_WORKERS = "processes are slots here: modelParallelism sets their number, and is measured without"


def read(path: Path) -> Taken | None:
    """Return the model of a folder, or those of its subfolders; None if there is no `model-settings.json`."""
    if not path.is_dir():
        return None
    if (path / _FILE).is_file():
        taken = _read(path)
        taken.left += _of_server(path)
        return taken
    folders = sorted(file.parent for file in path.glob(f"*/{_FILE}"))
    if not folders:
        return None
    taken = several.take(
        f"the models of MLServer in {path}", path.resolve().name, {one.name: partial(_read, one) for one in folders}
    )
    taken.left += [*_of_server(path), *several.unread(path, {_SERVER_FILE, *(folder.name for folder in folders)})]
    return taken


def _of_server(path: Path) -> list[str]:
    file = path / _SERVER_FILE
    settings = Fields(mapping(file, json.loads) if file.is_file() else {})
    left = settings.leave(_SERVER_FILE, _WORKERS, "parallel_workers")
    return left + settings.left(_SERVER_FILE, "of the server: the section http of config.yaml has such options")


def _read(path: Path) -> Taken:
    settings = Fields(mapping(path / _FILE, json.loads))
    kind = str(settings.take("implementation") or "").rpartition(".")[2]
    parameters = settings.part("parameters")
    if kind and kind not in _RUNTIMES:
        raise LaunchError(f"{path} is a model of {kind}: {_EXPLAINS.get(kind, _CODE)}")
    taken = _model(path, kind, str(parameters.take("uri") or ""))
    taken.name(str(settings.take("name") or path.resolve().name))
    size, seconds = settings.take("max_batch_size"), settings.take("max_batch_time")
    taken.keys |= {"maxBatchSize": size} if size else {}
    taken.keys |= {"batchTimeout": ceil(seconds * 1000)} if isinstance(seconds, int | float) and seconds > 0 else {}
    taken.left += parameters.leave(f"parameters in {_FILE}", FACT, "version")
    taken.left += settings.leave(_FILE, _WORKERS, "parallel_workers", "warm_workers")
    taken.left += settings.leave(_FILE, IN_MODEL, "inputs", "outputs", "platform", "versions")
    taken.left += settings.left(_FILE, ways=_WAYS)
    if kind in _ANSWERS:
        taken.left.append(
            f"{kind} of {_FILE}: its runtime answers with {_ANSWERS[kind]} of a classifier alone, as outputs: "
            f"{_ANSWERS[kind]} does"
        )
    own = [file for file in taken.files.values() if isinstance(file, Path) and path in file.parents]
    used = {file.relative_to(path).parts[0] for file in own}
    taken.left += several.unread(path, {_FILE, _SERVER_FILE, *used})
    return taken


def _model(path: Path, kind: str, uri: str) -> Taken:
    taken = Taken(f"the model of MLServer {path}")
    place = _place(path, uri) if uri and uri not in (".", "./") else path
    if isinstance(place, Path) and place.is_dir():
        found = mlflow.read(place)
        if found is not None:
            found.origin = taken.origin
            return found
        usual = next((place / name for name in _USUAL if (place / name).is_file()), None)
        if usual is None:
            if not holds_model(place):
                raise LaunchError(f"{path} holds no file that is served ({kind}): {_remedy(kind)}")
            taken.files |= {name: file for name, file in tree(place).items() if name not in (_FILE, _SERVER_FILE)}
            return taken
        place = usual
    taken.files |= _file(path, place, kind)
    return taken


def _place(path: Path, uri: str) -> Source:
    """Return what a `uri` names; of a path in a container, its end is looked for in the folder."""
    if is_url(uri):
        raise LaunchError(
            f"the uri of {path} is an address: set modelPath: {uri.rpartition('/')[0]}, and remove {_FILE}"
        )
    parts = PurePosixPath(uri).parts
    ends = ["/".join(parts[at:]) for at in range(1, len(parts))] if uri.startswith("/") else []
    return member(path, next((end for end in ends if (path / end).exists()), uri))


def _file(path: Path, file: Source, kind: str) -> dict[str, Source | bytes]:
    suffix = Path(file.name).suffix
    if suffix not in (*_KNOWN, ".bst") or (kind == "SKLearnModel" and suffix != ".skops"):
        raise LaunchError(f"{path} holds {file.name}, a pickle or code ({kind}), which is not run: {_remedy(kind)}")
    if suffix == ".json" or kind not in _NAMES:
        return {f"model{suffix}": file}
    return {_NAMES[kind]: file}


def _remedy(kind: str) -> str:
    return _REMEDIES.get(kind, "docs/reference/models.md says what is served, and how to convert other models")
