"""The target `directory`: a Flink session cluster by its name in a file that a team shares."""

from __future__ import annotations

from pathlib import Path

import yaml

from cluster_serving.launcher.config.model import Config, key
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.targets.session import Session
from cluster_serving.settings.model import Settings


class DirectoryKeys(Settings):
    """The keys of config.yaml that the target adds."""

    flink_directory: str = key(
        "/etc/flink-clusters.yaml",
        "the path of a YAML file with an address for each name",
        "directory: file with the REST addresses of Flink clusters, by their names.",
        alias="flink.directory",
    )
    flink_cluster: str = key(
        "",
        "a name in the file of flink.directory",
        "directory: name of the cluster that runs the job.",
        alias="flink.cluster",
    )


class Directory(Session):
    """The cluster of the name `flink.cluster`; jobs bring their packages and their model, as on every session."""

    keys = DirectoryKeys

    def __init__(self, config: Config) -> None:
        url = _address(Path(config.flink_directory), config.flink_cluster)
        super().__init__(config.model_copy(update={"flink_rest_url": url}))


def _address(file: Path, name: str) -> str:
    try:
        clusters = yaml.safe_load(file.read_text("utf8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise LaunchError(f"flink.directory: {file} cannot be read: {error}") from None
    if not isinstance(clusters, dict) or name not in clusters:
        known = ", ".join(map(str, clusters)) if isinstance(clusters, dict) else "none, as it is no mapping"
        raise LaunchError(f"flink.cluster is {name!r}; {file} has {known}")
    return f"http://{clusters[name]}"
