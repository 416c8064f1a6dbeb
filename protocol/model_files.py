"""The files that make a model."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MOST_FILES = 1000
"""Files of a model that are looked at."""

COMMAND_LOG = "cluster-serving.log"
"""Begin of the names of the commands' logs, which may lie beside a model."""


def files(folder: Path) -> Iterator[str]:
    """Yield the paths of the files that make a model, in order.

    Links are followed. Hidden files, configurations and the log of the commands do not count.
    """
    seen: set[tuple[int, int]] = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        with suppress(OSError):
            status = os.stat(parent)
            place = (status.st_dev, status.st_ino)
            if place in seen:
                # A link leads back.
                folders.clear()
                continue
            seen.add(place)
        # Python writes there when it loads a handler.
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__")))
        for name in sorted(names):
            if not name.startswith((".", COMMAND_LOG)) and not name.endswith((".yaml", ".yml")):
                yield os.path.join(parent, name)
