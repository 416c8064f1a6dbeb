"""MLflow: the flavors of transformers and sentence-transformers, which keep a folder of Hugging Face."""

from pathlib import Path

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins import hugging_face
from cluster_serving.launcher.origins.fields import Fields
from cluster_serving.launcher.origins.taken import Taken, below

_FOLDERS = {"transformers": "model", "sentence_transformers": "model.sentence_transformer"}
"""Flavor → the subfolder of its model."""

_COMPONENTS = "components"
FOLDERS = tuple(f"{name}/" for name in (*_FOLDERS.values(), _COMPONENTS))
"""Subfolders whose files are named by the reader of Hugging Face."""
_ADAPTER = "peft_adaptor"


def read(path: Path, flavors: Fields) -> Taken | None:
    """Return the model of a folder with such a flavor; None without one, or without its files.

    Raises:
        LaunchError: If it has weights alone, tokenizer and model apart, or an adapter.
    """
    flavor = next((name for name in _FOLDERS if name in flavors), None)
    if flavor is None:
        return None
    fields = flavors.part(flavor)
    if _ADAPTER in fields:
        raise LaunchError(
            f"{path} holds an adapter ({fields.take(_ADAPTER)}), which the model beside it lacks: log the "
            "model again after merge_and_unload() of the package peft"
        )
    folder = path / str(fields.take("model_binary") or _FOLDERS[flavor])
    if not folder.is_dir():
        source = fields.take("source_model_name")
        if source:
            raise LaunchError(
                f"{path} names the model {source} of the Hub, and holds no weights: export that one with optimum-cli, "
                "and take its folder over (docs/how-to/convert-models.md)"
            )
        return None
    return _read(path, folder)


def _read(path: Path, folder: Path) -> Taken | None:
    parts = [file for _, file in below(path / _COMPONENTS)] if (path / _COMPONENTS).is_dir() else []
    apart = sorted({file.name for file in parts if not (folder / file.name).is_file()})
    if not apart:
        return hugging_face.read(folder)
    first = f"{path} keeps {', '.join(apart)} apart from the model: run cp {path / _COMPONENTS}/*/* {folder}"
    try:
        hugging_face.read(folder)
    except LaunchError as error:
        raise LaunchError(f"{first} first; {error}") from None
    raise LaunchError(f"{first}, then cluster-serving-init --from {path}")
