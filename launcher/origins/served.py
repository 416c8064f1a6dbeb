"""Check that an engine loads what is taken over, by the names of its files."""

from pathlib import Path

from cluster_serving.job.models.folder import check_names
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins.taken import Taken
from cluster_serving.protocol.errors import ModelError


def check(taken: Taken) -> Taken:
    """Return one model unchanged.

    Raises:
        LaunchError: If its files, or those of one of its versions, are not those of one model. Without files nothing is
            checked.
    """
    folders: dict[str, set[str]] = {}
    for name in taken.files:
        first, _, rest = name.partition("/")
        version, path = (first, rest) if rest and first.isdecimal() else ("", name)
        head, more, _ = path.partition("/")
        folders.setdefault(version, set()).add(head + more)
    if len(folders) > 1:
        # Files beside the versions, such as labels, belong to no model.
        folders.pop("", None)
    for version, names in folders.items():
        try:
            check_names(names, Path("model", version))
        except ModelError as error:
            raise LaunchError(f"{taken.origin} cannot be served: {error}") from None
    return taken
