"""Where the launcher keeps what it started: one folder per service and port."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path


def root() -> Path:
    """The state folder: $CLUSTER_SERVING_HOME, or ~/.cluster-serving; without spaces, which Flink's scripts cannot take."""
    chosen = Path(os.environ.get("CLUSTER_SERVING_HOME") or Path.home() / ".cluster-serving").absolute()
    if not any(character.isspace() for character in str(chosen)):
        return chosen
    name = hashlib.sha256(os.fsencode(chosen)).hexdigest()[:12]
    return Path(tempfile.gettempdir(), f"cluster-serving-{os.getuid()}-{name}")
