"""Versions of a model: subfolders of the model's folder with numbers as names, as Triton and TF Serving have them."""

import re
from pathlib import Path

from cluster_serving.job.models.detect import is_model_file
from cluster_serving.protocol.errors import ModelError

_NUMBER = re.compile(r"[0-9]{1,18}")


def version_folders(path: str) -> dict[int, Path]:
    """Return the folders of the versions by number; none if the folder holds a model itself.

    Hidden folders and other names, such as `2.tmp` for a version that is still being copied, are not versions.

    Raises:
        ModelError: If the folder holds both versions and a model, or one version twice.
    """
    try:
        entries = sorted(Path(path).iterdir())
    except OSError:
        # Whatever needs the folder says so.
        return {}
    folders: dict[int, Path] = {}
    for entry in entries:
        number = number_of(entry)
        if number is None or not entry.is_dir():
            continue
        if number in folders:
            raise ModelError(f"{path} has version {number} twice, {folders[number].name} and {entry.name}; remove one")
        folders[number] = entry
    beside = [entry.name for entry in entries if is_model_file(entry.name + "/" * entry.is_dir())]
    if folders and beside:
        numbers = ", ".join(folder.name for folder in folders.values())
        raise ModelError(
            f"{path} holds both versions of a model ({numbers}) and files of a model ({', '.join(beside)}); move these "
            "files into the folder of their version"
        )
    return folders


def number_of(folder: Path) -> int | None:
    """Return the number of a version by the name of its folder; None if the name is no number."""
    return int(folder.name) if _NUMBER.fullmatch(folder.name) else None
