"""The version of a model that a configuration names (`job.models.versions`)."""

from pathlib import Path

from cluster_serving.job.models.folder import number_of, version_folders
from cluster_serving.job.remote.url import is_url
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.config.values import LATEST
from cluster_serving.protocol.errors import ModelError


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
    folders = version_folders(path)
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
    if number_of(Path(path)) == wanted:
        return path, str(wanted)
    if Path(path).exists():
        raise ModelError(
            f"modelVersion is {wanted}, but {path} has no versions, which are subfolders with numbers as names; remove "
            f"modelVersion, or move the model to {Path(path, str(wanted))}"
        )
    # The machines of Flink may have it.
    return str(Path(path, str(wanted))), str(wanted)
