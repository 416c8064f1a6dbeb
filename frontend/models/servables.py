"""The file `servables-conf.yaml` of the original: models by name and version, each served by a job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

VERSION = "1"
"""Version of a model for which no file names one."""


@dataclass(frozen=True, slots=True)
class Servable:
    """A model as that file names it.

    Attributes:
        name: `modelName`.
        version: `modelVersion`.
        job: `redisInputQueue`, which is the job's name.
        redis: `redisHost:redisPort`; empty if the file does not say.
    """

    name: str
    version: str
    job: str
    redis: str = ""


class ServablesError(Exception):
    """The file cannot be used; the message says where and why."""


class _Loader(yaml.SafeLoader):
    """Reads the tagged entries of that file as mappings that remember their tag."""


def _tagged(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    if not isinstance(node, yaml.MappingNode):
        raise yaml.constructor.ConstructorError(None, None, "expected keys and values", node.start_mark)
    fields = {str(key): value for key, value in loader.construct_mapping(node, deep=True).items()}
    return fields | {"tag": suffix.strip("<>"), "line": node.start_mark.line + 1}


yaml.add_multi_constructor("!", _tagged, _Loader)
yaml.add_multi_constructor("", _tagged, _Loader)


def read(path: Path) -> tuple[Servable, ...]:
    """Read the file.

    Raises:
        ServablesError: It cannot be read, names models that no job serves, or a model twice.
    """
    try:
        content = yaml.load(path.read_text("utf8"), _Loader)  # noqa: S506 - a SafeLoader
    except (OSError, UnicodeDecodeError) as error:
        raise ServablesError(f"{path} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise ServablesError(f"{path} is not valid YAML: {error}") from None
    entries = content.get("modelMetaDataList") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ServablesError(f"{path} has no list modelMetaDataList with a model in it")
    servables = tuple(_servable(path, entry) for entry in entries)
    if len({(servable.name, servable.version) for servable in servables}) < len(servables):
        raise ServablesError(f"{path} names a model of the same version twice")
    if len({servable.redis for servable in servables}) > 1:
        raise ServablesError(f"{path} names jobs of different Redis; start a front end for each Redis")
    return servables


def _servable(path: Path, entry: Any) -> Servable:
    if not isinstance(entry, dict) or "modelName" not in entry:
        raise ServablesError(f"{path}: an entry of modelMetaDataList has no modelName")
    where = f"{path}, line {entry.get('line', '?')}: model {entry['modelName']}"
    if entry.get("tag") == "InferenceModelMetaData" or "redisInputQueue" not in entry:
        raise ServablesError(
            f"{where} is to run inside the front end, or names no redisInputQueue; start it as a job of its own, and "
            "name that as redisInputQueue of a ClusterServingMetaData"
        )
    redis = f"{entry['redisHost']}:{entry.get('redisPort', 6379)}" if "redisHost" in entry else ""
    return Servable(
        str(entry["modelName"]), str(entry.get("modelVersion", VERSION)), str(entry["redisInputQueue"]), redis
    )
