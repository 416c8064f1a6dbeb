"""The original's file `servables-conf.yaml`: models under other names than those of their jobs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster_serving.frontend.errors import StartError


@dataclass(frozen=True, slots=True)
class ServableModel:
    """A model and the job that serves it.

    Attributes:
        name: `modelName`.
        version: `modelVersion`; empty if the file, or the lack of one, leaves it to the job.
        job: `redisInputQueue`, which is the job's name.
        redis: `redisHost:redisPort`; empty if the file does not name one.
    """

    name: str
    version: str
    job: str
    redis: str = ""


class _Loader(yaml.SafeLoader):
    """Loader of tagged entries as mappings with the keys `tag` and `line`."""


def _tagged(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    if not isinstance(node, yaml.MappingNode):
        raise yaml.constructor.ConstructorError(None, None, "expected keys and values", node.start_mark)
    fields = {str(key): value for key, value in loader.construct_mapping(node, deep=True).items()}
    return fields | {"tag": suffix.strip("<>"), "line": node.start_mark.line + 1}


yaml.add_multi_constructor("!", _tagged, _Loader)
yaml.add_multi_constructor("", _tagged, _Loader)


def read_servables(path: Path) -> tuple[ServableModel, ...]:
    """Read the original's file `servables-conf.yaml`: models by name and version, each served by a job.

    Raises:
        StartError: If the file cannot be read, names a model that no job serves, or names a model twice.
    """
    try:
        content = yaml.load(path.read_text("utf8"), _Loader)  # noqa: S506 - a SafeLoader
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"{path} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise StartError(f"{path} is not valid YAML: {error}") from None
    entries = content.get("modelMetaDataList") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries:
        raise StartError(f"{path} has no list modelMetaDataList with a model in it")
    servables = tuple(_servable(path, entry) for entry in entries)
    if len({(servable.name, servable.version) for servable in servables}) < len(servables):
        raise StartError(f"{path} names a model of the same version twice")
    if len({servable.redis for servable in servables}) > 1:
        raise StartError(f"{path} names jobs of different Redis; start a front end for each Redis")
    return servables


def _servable(path: Path, entry: Any) -> ServableModel:
    if not isinstance(entry, dict) or "modelName" not in entry:
        raise StartError(f"{path}: an entry of modelMetaDataList has no modelName")
    where = f"{path}, line {entry.get('line', '?')}: model {entry['modelName']}"
    if entry.get("tag") == "InferenceModelMetaData" or "redisInputQueue" not in entry:
        raise StartError(
            f"{where} is to run inside the front end, or names no redisInputQueue; start it as a job of its own, and "
            "name that job as redisInputQueue of a ClusterServingMetaData"
        )
    redis = f"{entry['redisHost']}:{entry.get('redisPort', 6379)}" if "redisHost" in entry else ""
    return ServableModel(
        str(entry["modelName"]), str(entry.get("modelVersion", "")), str(entry["redisInputQueue"]), redis
    )
