"""The file `cluster-serving.log` beside `config.yaml`: what the commands said, and when."""

from __future__ import annotations

import logging
import os
from logging.handlers import RotatingFileHandler
from pathlib import Path

NAME = "cluster-serving.log"
"""Name of the file, as in the original."""

log = logging.getLogger("cluster_serving.commands")
"""Messages of the commands; they reach the file once `keep_in` has named it."""

log.addHandler(logging.NullHandler())
log.propagate = False
log.setLevel(logging.INFO)

_LARGEST = 5 << 20
_KEPT = 2


def keep_in(folder: Path) -> None:
    """Append all further messages to the file in a folder; to none if this user cannot write there."""
    path = folder / NAME
    if not os.access(path if path.exists() else folder, os.W_OK):
        return
    handler = RotatingFileHandler(path, maxBytes=_LARGEST, backupCount=_KEPT, encoding="utf8", delay=True)
    handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s [{os.getpid()}] %(message)s"))
    log.addHandler(handler)
