"""MLflow: the folder of a model with its file `MLmodel`."""

from pathlib import Path

import yaml

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins import torchserve
from cluster_serving.launcher.origins.fields import FACT, IN_MODEL, Fields
from cluster_serving.launcher.origins.taken import REQUIREMENTS, Source, Taken, external_data, member, tree

EXPECTED = "a model of MLflow, MLmodel"

_FILE = "MLmodel"
_FACTS = ("artifact_path", "mlflow_version", "model_id", "model_size_bytes", "model_uuid", "run_id", "utc_time_created")
_NATIVE = {"xgboost": "model.ubj", "lightgbm": "model.txt", "catboost": "model.cbm", "onnx": "model.onnx"}
"""Flavors whose file is served as it is → its name here."""

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
    """Return the model of a folder; None if it has no `MLmodel`."""
    if not (path / _FILE).is_file():
        return None
    try:
        described = Fields(yaml.safe_load((path / _FILE).read_text("utf8")))
        flavors = described.part("flavors")
        if not [*flavors]:
            raise ValueError("no flavors")
    except (yaml.YAMLError, AttributeError, ValueError):
        raise LaunchError(f"{path / _FILE} names no flavors; log the model again with MLflow") from None
    files = _files(path, flavors)
    if not files:
        flavor = next((name for name in (*_REMEDIES, *flavors) if name in flavors), "")
        task = flavors.part("transformers").take("task", "feature-extraction")
        remedy = _REMEDIES.get(flavor, "docs/reference/models.md says what is served, and how to convert other models")
        raise LaunchError(
            f"{path} is a pickle or code ({flavor}), which is not run: {remedy.format(path=path, task=task)}"
        )
    taken = Taken(f"the MLflow model {path}", files)
    taken.name(path.resolve().name)
    if described.take("signature"):
        taken.left.append("the signature: the model tells its own inputs, which cluster-serving-cli status shows")
    if (path / "requirements.txt").is_file():
        taken.left.append(REQUIREMENTS)
    # The other flavors are other ways to load the same model.
    for flavor in flavors:
        taken.left += flavors.part(flavor).left(f"the flavor {flavor} of {_FILE}", IN_MODEL)
    taken.left += described.leave(_FILE, FACT, *_FACTS)
    taken.left += described.left(_FILE)
    return taken


def _files(path: Path, flavors: Fields) -> dict[str, Source | bytes]:
    """Return the files to serve; none if the model is a pickle or code."""
    for flavor, name in _NATIVE.items():
        if flavor in flavors:
            file = member(path, flavors.part(flavor).take("data"))
            if file.name.endswith((".pkl", ".skops")):
                return {}
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
    return _of_tensorflow(path, tensorflow) if [*tensorflow] else {}


def _of_tensorflow(path: Path, flavor: Fields) -> dict[str, Source | bytes]:
    member(path, name := flavor.take("saved_model_dir") or flavor.take("data"))
    folder = path / str(name)
    files = tree(folder / "model" if (folder / "model").is_dir() else folder)
    return {name: file for name, file in files.items() if not name.endswith((".txt", ".cloudpickle"))}
