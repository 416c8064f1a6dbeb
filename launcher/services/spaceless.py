"""Paths in the state folder as Flink's scripts can take them."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import state

_LINKS = Path("/tmp")  # noqa: S108 - the links have no content, and their owner is checked


def without_spaces(path: Path) -> Path:
    """Return a path in the state folder, by a link of this user if it has spaces.

    Raises:
        LaunchError: If the link cannot be made.
    """
    if not any(character.isspace() for character in str(path)):
        return path
    home = state.root()
    name = hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
    link = _LINKS / f"cluster-serving-home-{os.getuid()}-{name}"
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileExistsError):
            link.symlink_to(home)
        if link.lstat().st_uid == os.getuid() and link.readlink() == home:
            return link / path.relative_to(home)
        problem = "it leads elsewhere"
    except OSError as error:
        problem = str(error.strerror)
    raise LaunchError(
        f"Flink takes no path with spaces such as {home}, and {link} cannot be a link to it: {problem}; set "
        f"{state.HOME} to a folder without spaces"
    )
