"""Keys of config.yaml for YARN."""

from __future__ import annotations

from typing import cast

from cluster_serving.launcher.config.model import Config, key
from cluster_serving.settings.model import Settings


class YarnKeys(Settings):
    """The keys of yarn-application and yarn-session."""

    flink_queue: str = key(
        "", "the name of a queue, or empty", "Queue of YARN for the job. Empty: YARN's default.", alias="flink.queue"
    )
    flink_application_id: str = key(
        "",
        "an id such as application_1700000000000_0001, or empty",
        "Flink session of the target yarn-session. Empty: the only one of this user.",
        alias="flink.applicationId",
        pattern=r"^(application_\d+_\d+)?$",
    )
    flink_staging: str = key(
        "",
        "the path or the URI of a folder, or empty",
        "Folder in the file system of a YARN cluster, to which Flink, Python and the model are uploaded once. Empty: "
        ".cluster-serving in the home folder of this user there.",
        alias="flink.staging",
    )


def of(config: Config) -> YarnKeys:
    """Return a configuration as it has these keys."""
    return cast("YarnKeys", config)
