"""Models that a manifest of Kubernetes names by the address of their storage."""

from collections.abc import Callable
from pathlib import Path, PurePosixPath

from cluster_serving.job.models.folder import holds_model
from cluster_serving.job.remote.url import ModelUrl, is_url
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins.taken import Taken, tree

_PICKLE = (
    "a job runs no pickle, such as model.joblib or model.pkl: save the model with skops.io.dump(model, 'model.skops')"
)
_FORMATS = {
    "sklearn": _PICKLE,
    "xgboost": "save the model as model.ubj; model.bst is not known by its name",
    "lightgbm": "save the model as model.txt; model.bst is not known by its name",
    "catboost": "",
    "onnx": "",
    "openvino": "",
    "tensorflow": "modelPath names one version: add its number to the address",
    "keras": "",
    "pytorch": "copy the folder here, and take over its archives: cluster-serving-init --from model-store",
    "triton": "copy the folder here, and take it over: cluster-serving-init --from FOLDER",
    "mlserver": "copy the folder here, and take it over: cluster-serving-init --from FOLDER",
    "mlflow": "copy the folder here, and take it over: cluster-serving-init --from FOLDER",
    "huggingface": "copy the folder here, and take it over: cluster-serving-init --from FOLDER",
}
"""Format of a model in a manifest → what is to be done with files of it that nobody has looked at."""

_UNKNOWN = "no engine here loads it; docs/reference/models.md says which files are served, and how to convert others"
_SAME = {"openvino_ir": "openvino", "torchscript": "pytorch", "torchserve": "pytorch"}
_FILE_SUFFIXES = (".onnx", ".ubj", ".bst", ".cbm", ".skops", ".joblib", ".pkl", ".pickle", ".pt", ".pth", ".pt2")
_NAMES = {"lightgbm": {"model.bst": "model.txt"}, "xgboost": {"model.bst": "model.xgb"}}
"""Format → name of its file there and here."""

Reader = Callable[[Path], Taken | None]


def take(taken: Taken, address: str, kinds: list[str], read: Reader) -> None:
    """Add the model at an address: its files if they are on this machine, else `modelPath`, and what is to be done.

    Args:
        taken: What gets files, keys and lines.
        address: As the manifest has it; empty without one.
        kinds: Names of the format, in the words of the manifest.
        read: What reads the folder of another server.
    """
    kinds = [_SAME.get(kind.lower(), kind.lower()) for kind in kinds]
    folder = Path(address.removeprefix("file://")) if address.startswith(("file://", "/")) else None
    if folder is not None and folder.is_dir():
        _take_folder(taken, folder, kinds, read)
        return
    if folder is not None and not folder.exists():
        taken.left.append(f"{address}, which does not exist on this machine: copy the model into model/")
        return
    if not address:
        taken.left.append("the model: no address is given; put its files into model/")
        return
    known = [kind for kind in kinds if kind in _FORMATS]
    advice = next((_FORMATS[kind] for kind in known if _FORMATS[kind]), "")
    if kinds and not known:
        taken.left.append(f"the format {', '.join(kinds)}: {_UNKNOWN}")
    elif advice:
        taken.left.append(f"the files of the format {known[0]}, which were not looked at: {advice}")
    _take_address(taken, address)


def _take_address(taken: Taken, address: str) -> None:
    name = PurePosixPath(address).name
    if is_url(address) and PurePosixPath(name).suffix in _FILE_SUFFIXES and not address.startswith("http"):
        taken.left.append(f"{name}: modelPath names its folder, which is to hold that model alone")
        address = address[: -len(name)].rstrip("/")
    try:
        ModelUrl.parse(address)
    except ValueError as error:
        shown = address.partition("?")[0]
        way = "mount the volume, and set modelPath" if address.startswith("pvc://") else "copy the model into model/"
        taken.left.append(f"the address {shown}, from which a job fetches nothing ({error}): {way}")
        return
    taken.keys["modelPath"] = address
    taken.left.append("credentials of the storage: docs/how-to/model-stores.md says where a job looks for them")


def _take_folder(taken: Taken, folder: Path, kinds: list[str], read: Reader) -> None:
    found = read(folder)
    if found is None:
        names = {there: here for kind in kinds for there, here in _NAMES.get(kind, {}).items()}
        files = {names.get(name, name): source for name, source in tree(folder).items()}
        if not (holds_model(folder) or any((folder / name).is_file() for name in names)):
            raise LaunchError(
                f"{folder} holds no model that is served: {', '.join(sorted(files)[:20]) or 'it is empty'}"
            )
        found = Taken(taken.origin, files)
    taken.files |= found.files
    taken.own |= found.own
    taken.keys = found.keys | taken.keys
    taken.left += found.left
