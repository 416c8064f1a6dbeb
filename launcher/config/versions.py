"""Versions of a model: subfolders of the model's folder with numbers as names, as Triton and TF Serving have them."""

import re
from pathlib import Path

from cluster_serving.job.main import is_model_file
from cluster_serving.job.remote.url import is_url
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.config.values import LATEST
from cluster_serving.protocol.errors import ModelError

_NUMBER = re.compile(r"[0-9]{1,18}")


def resolved(config: Config) -> Config:
    """Return a copy whose `modelPath` is the folder of one version, and whose `modelVersion` is its number.

    For a model without versions, which includes all models at addresses, both are as before.

    Raises:
        ModelError: As for `resolve`.
    """
    folder, version = resolve(config.model_path, config.model_version)
    return config.model_copy(update={"model_path": folder, "model_version": int(version) if version else LATEST})


def resolve(path: str, wanted: int | str = LATEST) -> tuple[str, str]:
    """Return the folder of a version of a model and the number of the version, as text.

    The highest number is the `LATEST` version. A folder that holds a model itself has no versions: it is returned with
    an empty text, as is one that is not on this machine. The resolved folder of a version is returned as it is.

    Raises:
        ModelError: If there is no such version, or the folder holds both versions and a model.
    """
    if is_url(path):
        if wanted != LATEST:
            raise ModelError(
                f"modelVersion is {wanted}, and only folders of this machine have versions; remove modelVersion, and "
                f"name the address of that version in modelPath: {path}"
            )
        return path, ""
    folders = _folders(path)
    if folders:
        number = max(folders) if wanted == LATEST else int(wanted)
        if number not in folders:
            known = ", ".join(map(str, sorted(folders)))
            raise ModelError(
                f"there is no version {wanted} of the model in {path}; there are {known}. Set modelVersion to one of "
                f"them, or to {LATEST}"
            )
        return str(folders[number]), str(number)
    if wanted == LATEST:
        return path, ""
    if _number(Path(path)) == wanted:
        return path, str(wanted)
    if Path(path).exists():
        raise ModelError(
            f"modelVersion is {wanted}, but {path} has no versions, which are subfolders with numbers as names; remove "
            f"modelVersion, or move the model to {Path(path, str(wanted))}"
        )
    # The machines of Flink may have it.
    return str(Path(path, str(wanted))), str(wanted)


def versions(path: str) -> list[int]:
    """Return the versions of the model in a folder, ascending; none if the folder holds a model itself.

    Hidden folders and other names, such as `2.tmp` for a version that is still being copied, are no versions.

    Raises:
        ModelError: If the folder holds both versions and a model, or one version twice.
    """
    return sorted(_folders(path))


def _folders(path: str) -> dict[int, Path]:
    """Return the folders of the versions by number."""
    try:
        entries = sorted(Path(path).iterdir())
    except OSError:
        # Whatever needs the folder says so.
        return {}
    folders: dict[int, Path] = {}
    for entry in entries:
        number = _number(entry)
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


def _number(folder: Path) -> int | None:
    return int(folder.name) if _NUMBER.fullmatch(folder.name) else None
