"""What the commands tell a person: steps that begin, and warnings.

The file `cluster-serving.log` beside `config.yaml` keeps them, with the time. A terminal shows them
(`launcher.terminal`), and a controller prints them (`rollout.controller`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from cluster_serving.protocol.model_files import COMMAND_LOG

NAME = COMMAND_LOG
"""Name of the file, as in the original."""

log = logging.getLogger("cluster_serving.commands")
"""Messages of the commands; they reach the file once `keep_in` has named it."""

PROGRESS = logging.INFO - 5
"""Level of messages that say how far a step is, which the file leaves out."""

say, warn = log.info, log.warning
"""Tell which step begins now, and what may be wrong."""

Say = Callable[[str], None]
"""One of these two."""

log.addHandler(logging.NullHandler())
log.propagate = False
log.setLevel(PROGRESS)


def say_progress(done: str) -> None:
    """Tell how far the step is that has begun last, such as "120 of 314 MB"."""
    log.log(PROGRESS, done)


_LARGEST = 5 << 20
_KEPT = 2


def keep_in(folder: Path) -> None:
    """Append all further messages to the file in a folder; to none if this user cannot write there."""
    path = folder / NAME
    if not os.access(path if path.exists() else folder, os.W_OK):
        return
    # Imported here: help and most commands that show something keep no log.
    from logging.handlers import RotatingFileHandler

    handler = RotatingFileHandler(path, maxBytes=_LARGEST, backupCount=_KEPT, encoding="utf8", delay=True)
    handler.setLevel(logging.INFO)
    handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s [{os.getpid()}] %(message)s"))
    log.addHandler(handler)
