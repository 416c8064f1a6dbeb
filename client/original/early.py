"""Programs beside a `config.yaml` of 0.7 or 0.8: their Redis, the job that such a file implies, and its results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from cluster_serving.client.result import Result
from cluster_serving.protocol.original.image_stream import STREAM, nested_text
from cluster_serving.protocol.original.texts import ranking_json, ranking_text
from cluster_serving.protocol.results import RankedClasses

_SPARK = re.compile(r"^spark:", re.MULTILINE)
"""Section that only files of 0.7 and 0.8 have."""

_IN_SECTION = r"""^{}:.*\n(?:(?:[ \t].*|\#.*|)\n)*?[ \t]+{}:[ \t]*["']?([^\s"'\#]+)"""
_SOURCE = re.compile(_IN_SECTION.format("data", "src"), re.MULTILINE)
_NAME = re.compile(_IN_SECTION.format("model", "name"), re.MULTILINE)
_FILTER = re.compile(r"^data:.*\n(?:(?:[ \t].*|\#.*|)\n)*?[ \t]+filter:", re.MULTILINE)
_FLAT_FILTER = re.compile(r"^postProcessing:(.*)", re.MULTILINE)
_FLAT_NAME = re.compile(r"""^jobName:[ \t]*["']?([^\s"'\#]+)""", re.MULTILINE)


class Found(NamedTuple):
    """Redis and job of a file of 0.7 or 0.8, and the function that writes a ranking as results of that job do."""

    host: str
    port: str
    job: str
    ranking: Callable[[RankedClasses], str]


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
    flat = _FLAT_FILTER.search(text)
    # 0.7 has no filter, but the number `top_n`.
    is_later = "topN" in flat[1] if flat else _FILTER.search(text)
    ranking = ranking_text if is_later else ranking_json
    return Found(host or "localhost", port or "6379", name[1] if name else STREAM, ranking)


def text_of(result: Result, ranking: Callable[[RankedClasses], str]) -> str:
    """Return the text that the servers of 0.7 and 0.8 stored as a result: a ranking, or nested lists of numbers.

    Several outputs are a list of them. Those servers had no texts as outputs, which are JSON here.
    """
    with suppress(ValueError):
        return ranking(result.top_n)
    outputs = result.outputs.values()
    texts = [nested_text(each) if each.dtype.kind in "biuf" else json.dumps(each.tolist()) for each in outputs]
    return texts[0] if len(texts) == 1 else f"[{','.join(texts)}]"
