"""MLflow: the folder of a model with its file `MLmodel`."""

from functools import partial
from pathlib import Path
from typing import Any

import yaml

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins import mlflow_transformers, several, torchserve
from cluster_serving.launcher.origins.fields import FACT, IN_MODEL, Fields
from cluster_serving.launcher.origins.taken import REQUIREMENTS, Source, Taken, external_data, member, tree

EXPECTED = "a model of MLflow, MLmodel"

_FILE = "MLmodel"
_FACTS = (
    *("is_signature_from_type_hint", "type_hint_from_example", "metadata", "resources", "prompts", "auth_policy"),
    *("artifact_path", "mlflow_version", "model_id", "model_size_bytes", "model_uuid", "run_id"),
    "utc_time_created",
)
_NATIVE = {"xgboost": "model.ubj", "lightgbm": "model.txt", "catboost": "model.cbm", "onnx": "model.onnx"}
"""Flavors whose file is served as it is → its name here, but for the suffixes of XGBoost."""

_SUFFIXES = (".json", ".ubj", ".xgb")
_BESIDE = ("MLmodel", "conda.yaml", "python_env.yaml", "requirements.txt", "registered_model_meta")
_ANOTHER_WAY = "another way to load the same file, which a job does not take"
_DEVICE = "the key device says where a model is computed, and threadPerModel with how many threads"

_REMEDIES = {
    "xgboost": "save it with model.save_model('model/model.ubj')",
    "lightgbm": "save it with model.booster_.save_model('model/model.txt')",
    "sklearn": "save it with skops.io.dump(model, 'model/model.skops')",
    "pytorch": "save it with torch.jit.trace(model.eval(), example).save('model/model.pt')",
    "transformers": "run optimum-cli export onnx --task {task} --model {path}/model {path}/model/onnx, then "
    "cluster-serving-init --from {path}/model",
    "python_function": "move its code into a handler (cluster-serving-init --handler)",
}


def read(path: Path) -> Taken | None:
    """Return the model of a folder, or those of its subfolders; None if there is no `MLmodel`."""
    if (path / _FILE).is_file():
        return _read(path)
    folders = sorted(file.parent for file in path.glob(f"*/{_FILE}"))
    if not folders:
        return None
    readers = {folder.name: partial(_read, folder) for folder in folders}
    taken = several.take(f"the MLflow models in {path}", path.resolve().name, readers)
    taken.left += several.unread(path, set(readers))
    return taken


def _read(path: Path) -> Taken:
    try:
        described = Fields(yaml.safe_load((path / _FILE).read_text("utf8")))
        flavors = described.part("flavors")
        if not [*flavors]:
            raise ValueError("no flavors")
    except (yaml.YAMLError, AttributeError, ValueError):
        raise LaunchError(f"{path / _FILE} names no flavors; log the model again with MLflow") from None
    found = mlflow_transformers.read(path, flavors)
    files = found.files if found else _files(path, flavors)
    if not files:
        flavor = next((name for name in (*_REMEDIES, *flavors) if name in flavors), "")
        task = flavors.part("transformers").take("task", "feature-extraction")
        remedy = _REMEDIES.get(flavor, "docs/reference/models.md says what is served, and how to convert other models")
        raise LaunchError(
            f"{path} is a pickle or code ({flavor}), which is not run: {remedy.format(path=path, task=task)}"
        )
    taken = Taken(f"the MLflow model {path}", files)
    if found:
        taken.keys, taken.left = found.keys, found.left
    taken.name(path.resolve().name)
    signature = described.part("signature")
    if signature.take("params") not in (None, "null"):
        taken.left.append("the params of the signature: a handler takes such values as inputs of a record")
    if [signature.take(name) for name in signature]:
        taken.left.append("the signature: the model tells its own inputs, which cluster-serving-cli status shows")
    if (path / "requirements.txt").is_file():
        taken.left.append(REQUIREMENTS)
    _take_function(taken, flavors.part("python_function"))
    for flavor in flavors:
        fields, where = flavors.part(flavor), f"the flavor {flavor} of {_FILE}"
        _take_answer(taken, flavor, fields.take("model_class") or fields.take("model_type"))
        taken.left += fields.leave(where, _DEVICE, "providers", "onnx_session_options")
        taken.left += fields.leave(where, f"code, which is not run: {_REMEDIES['python_function']}", "code")
        taken.left += fields.left(where, _ANOTHER_WAY if flavor == "python_function" else IN_MODEL)
    taken.left += described.leave(_FILE, FACT, *_FACTS)
    taken.left += described.leave(_FILE, "examples of records, which a client may send", "saved_input_example_info")
    taken.left += described.left(_FILE)
    used = set(taken.files.values())
    hidden = mlflow_transformers.FOLDERS if found else ()
    others = sorted(
        name
        for name, file in tree(path).items()
        if name not in _BESIDE and file not in used and not name.startswith(hidden)
    )
    if others:
        taken.left.append(f"{', '.join(others)}: files that no job reads; copy what a handler needs")
    return taken


def _take_answer(taken: Taken, flavor: str, kind: Any) -> None:
    """Name the output with which MLflow's own server answers alone, for a booster that may be a classifier."""
    if flavor in ("xgboost", "lightgbm", "catboost"):
        if str(kind).endswith(("Regressor", "Ranker")):
            return
        is_label = "lassifier" in str(kind) or flavor == "catboost"
        output = "label" if is_label else "probabilities"
        taken.left.append(
            f"what MLflow answers for {str(kind or flavor).rpartition('.')[2]}: {output} of a classifier alone, as "
            f"outputs: {output} does"
        )


def _take_function(taken: Taken, function: Fields) -> None:
    """Take the method that MLflow's own server calls; a job answers with labels and probabilities."""
    method = function.take("predict_fn")
    if method == "predict_proba":
        taken.keys["outputs"] = "probabilities"
    elif method == "predict" and any(name.endswith(".skops") for name in taken.files):
        taken.left.append(f"predict_fn predict of {_FILE}: set outputs: label to get labels alone from a classifier")
    elif method and method != "predict":
        taken.left.append(f"predict_fn {method} of {_FILE}: a handler computes it (cluster-serving-init --handler)")


def _files(path: Path, flavors: Fields) -> dict[str, Source | bytes]:
    """Return the files to serve; none if the model is a pickle or code."""
    for flavor, name in _NATIVE.items():
        if flavor in flavors:
            file = member(path, flavors.part(flavor).take("data"))
            if file.name.endswith((".pkl", ".skops")):
                return {}
            if flavors.part(flavor).take("save_format", "cbm") != "cbm":
                raise LaunchError(
                    f"{path} is a model of CatBoost as {flavors.part(flavor).take('save_format')}: save it as model.cbm"
                )
            suffix = Path(file.name).suffix
            name = f"model{suffix}" if flavor == "xgboost" and suffix in _SUFFIXES else name
            return {name: file} | external_data(file, path)
    sklearn, torch, tensorflow = (flavors.part(name) for name in ("sklearn", "pytorch", "tensorflow"))
    if sklearn.take("serialization_format") == "skops":
        return {"model.skops": member(path, sklearn.take("pickled_model"))}
    if [*torch]:
        data = torch.take("model_data", "data")
        torch.take("serialization_format")
        if (path / str(data) / "model.pt2").is_file():
            return {"model.pt2": member(path, f"{data}/model.pt2")}
        file = member(path, f"{data}/model.pth")
        return {"model.pt": file} if torchserve.is_torchscript(file) else {}
    kept = tensorflow if [*tensorflow] else flavors.part("keras")
    return _of_tensorflow(path, kept) if [*kept] else {}


def _of_tensorflow(path: Path, flavor: Fields) -> dict[str, Source | bytes]:
    member(path, name := flavor.take("saved_model_dir") or flavor.take("data"))
    folder = path / str(name)
    files = tree(folder / "model" if (folder / "model").is_dir() else folder)
    return {name: file for name, file in files.items() if not name.endswith((".txt", ".cloudpickle"))}
