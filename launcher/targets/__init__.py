"""The places where jobs run: this machine, and clusters that have nothing of ours."""

from typing import cast

from cluster_serving.launcher.config import targets
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.targets.base import Target

__all__ = ["Target", "target_of"]


def target_of(config: Config) -> Target:
    """Return the target that `flink.target` names."""
    return cast("Target", targets.kind(config.target)(config))
