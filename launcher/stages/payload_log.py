"""Keys of config.yaml for the payload log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from cluster_serving.launcher.config.model import NAMES, key
from cluster_serving.launcher.config.stages import StageKeys
from cluster_serving.settings.values import Names


class PayloadLogKeys(StageKeys):
    """The keys of `connectors.stages.payload_log`."""

    headings: ClassVar[Mapping[str, str]] = {
        "payloadLog": "# A log of what clients send and get, for tools that watch the data (docs/how-to/traces.md).\n"
    }

    payload_log_sample: float = key(
        0.0,
        "a number from 0 to 1",
        "Share of the requests whose inputs, outputs, version and latency are written (docs/how-to/traces.md); 0: "
        "none.",
        alias="payloadLog.sample",
        ge=0,
        le=1,
    )
    payload_log_to: str = key(
        "payload-log",
        "the path of a folder, or an address such as s3://bucket/folder",
        "Where they are written: Parquet files in a folder of the machine of each slot, or in a store.",
        alias="payloadLog.to",
        min_length=1,
    )
    payload_log_without: Names = key(
        "",
        NAMES,
        "Columns to leave out, such as uri, input.image or output.*.",
        alias="payloadLog.without",
    )

    @classmethod
    def folders(cls, values: Mapping[str, Any]) -> Sequence[str]:
        """Return the key of the place of the log, unless it is in a store, or nothing is logged."""
        return ["payload_log_to"] if values["payload_log_sample"] and not cls.addresses(values) else []

    @classmethod
    def addresses(cls, values: Mapping[str, Any]) -> Sequence[str]:
        """Return the place of the log, if that is a store."""
        place = values["payload_log_to"]
        return [place] if values["payload_log_sample"] and "://" in place else []
