"""Programs beside a `config.yaml` of 0.7 or 0.8, which names their Redis, and a job that such a file implies."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from cluster_serving.protocol.original.image_stream import STREAM

_SPARK = re.compile(r"^spark:", re.MULTILINE)
"""Section that only files of 0.7 and 0.8 have."""

_IN_SECTION = r"""^{}:.*\n(?:(?:[ \t].*|\#.*|)\n)*?[ \t]+{}:[ \t]*["']?([^\s"'\#]+)"""
_SOURCE = re.compile(_IN_SECTION.format("data", "src"), re.MULTILINE)
_NAME = re.compile(_IN_SECTION.format("model", "name"), re.MULTILINE)
_FLAT_NAME = re.compile(r"""^jobName:[ \t]*["']?([^\s"'\#]+)""", re.MULTILINE)


class Found(NamedTuple):
    """Redis and job of a file of 0.7 or 0.8."""

    host: str
    port: str
    job: str


def find() -> Found | None:
    """Return what the `config.yaml` of the current folder says, None if it is not one of 0.7 or 0.8.

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
    name = _NAME.search(text) or _FLAT_NAME.search(text)
    return Found(host or "localhost", port or "6379", name[1] if name else STREAM)
