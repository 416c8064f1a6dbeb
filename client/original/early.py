"""Programs of 0.7 and 0.8, which find their Redis by the `config.yaml` in the current folder."""

from __future__ import annotations

import re
from pathlib import Path

_SPARK = re.compile(r"^spark:", re.MULTILINE)
"""Section that only files of 0.7 and 0.8 have."""

_SOURCE = re.compile(r"""^data:.*\n(?:(?:[ \t].*|\#.*|)\n)*?[ \t]+src:[ \t]*["']?([^\s"'\#]+)""", re.MULTILINE)


def find() -> tuple[str, str] | None:
    """Return host and port in the `config.yaml` of the current folder, None if it is not one of 0.7 or 0.8.

    The file is not parsed as YAML, which would need a package that no other client needs.
    """
    try:
        text = Path("config.yaml").read_text("utf8")
    except (OSError, UnicodeDecodeError):
        return None
    if not _SPARK.search(text):
        return None
    source = _SOURCE.search(text)
    host, _, port = (source[1] if source else "").partition(":")
    return host or "localhost", port or "6379"
