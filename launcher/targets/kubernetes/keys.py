"""Keys of config.yaml for Kubernetes."""

from __future__ import annotations

from typing import cast

from cluster_serving.launcher.config.model import Config, key
from cluster_serving.settings.model import Settings


class KubernetesKeys(Settings):
    """The keys of kubernetes-application and kubernetes-session."""

    flink_image: str = key(
        "",
        "an image with Flink 2.3, such as registry/cluster-serving-flink:1",
        "kubernetes-application: image of the pods.",
        alias="flink.image",
    )
    flink_namespace: str = key(
        "",
        "the name of a namespace, or empty",
        "Kubernetes: namespace of the pods; empty: that of the context.",
        alias="flink.namespace",
    )
    flink_context: str = key(
        "",
        "the name of a context of kubectl, or empty",
        "Kubernetes: cluster and user, as kubectl knows them; empty: the current context.",
        alias="flink.context",
    )
    flink_service_account: str = key(
        "default",
        "the name of a service account",
        "kubernetes-application: account of the pods, which may create pods, services, config maps and deployments.",
        min_length=1,
        alias="flink.serviceAccount",
    )
    flink_volume: str = key(
        "",
        "the name of a PersistentVolumeClaim, or empty",
        "kubernetes-application: volume to which the launcher copies what ships, and which all pods can read. Empty: "
        "only models of less than 1 MB can be shipped; see docs/how-to/deploy/kubernetes-commands.md.",
        alias="flink.volume",
    )
    flink_cluster_id: str = key(
        "",
        "the name of a Flink session cluster, or empty",
        "kubernetes-session: kubernetes.cluster-id of the cluster that runs the job.",
        alias="flink.clusterId",
    )


def of(config: Config) -> KubernetesKeys:
    """Return a configuration as it has these keys."""
    return cast("KubernetesKeys", config)
