"""Checks of a key of `config.yaml` against keys before it; what fails is told with what the key expects."""

from __future__ import annotations

from pydantic import ValidationInfo

from cluster_serving.protocol.encryption import RecordKey


def fits_color(value: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
    """A number per channel: three would make three channels of one."""
    if len(value) > 1 and info.data.get("image_color") == "GRAY":
        raise ValueError("one channel")
    return value


def has_a_key(value: RecordKey | None, info: ValidationInfo) -> RecordKey | None:
    """Encrypted images need a key."""
    if value is None and info.data.get("record_encrypted"):
        raise ValueError("no key to decrypt with")
    return value


def keys_in_one_slot(value: str, info: ValidationInfo) -> str:
    """In a Redis Cluster, only the keys of a name in braces are on one node."""
    if "+cluster://" in value and not str(info.data.get("job_name", "{")).startswith("{"):
        raise ValueError("jobName has no braces")
    return value
