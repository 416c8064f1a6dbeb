"""The places where jobs run: this machine, and clusters that have nothing of ours."""

from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.targets.base import Target
from cluster_serving.launcher.targets.kubernetes.application import KubernetesApplication
from cluster_serving.launcher.targets.kubernetes.session import KubernetesSession
from cluster_serving.launcher.targets.local import Local
from cluster_serving.launcher.targets.remote import Remote
from cluster_serving.launcher.targets.yarn.application import YarnApplication
from cluster_serving.launcher.targets.yarn.session import YarnSession

__all__ = ["Target", "target_of"]

_TARGETS: dict[str, type[Target]] = {
    "local": Local,
    "remote": Remote,
    "yarn-application": YarnApplication,
    "yarn-session": YarnSession,
    "kubernetes-application": KubernetesApplication,
    "kubernetes-session": KubernetesSession,
}


def target_of(config: Config) -> Target:
    """Return the target that `flink.target` names."""
    return _TARGETS[config.target](config)
