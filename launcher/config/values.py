"""Types of the values of `config.yaml` that YAML itself does not have."""

import re
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from cluster_serving.job.remote.url import ModelUrl, is_archive, is_url
from cluster_serving.protocol.record_key import RecordKey, published_key
from cluster_serving.protocol.values import filters
from cluster_serving.settings.values import Names, to_tuple

LATEST = "latest"
"""Value of `modelVersion`: the highest number."""

_FILE = "file://"
_JOB_NAME = re.compile(r"(?=.{1,200}$)(\{[A-Za-z0-9_.-]+\})?[A-Za-z0-9_.-]*")
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)b?", re.IGNORECASE)
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def _model_path(value: Any) -> Any:
    if not isinstance(value, str) or not is_url(value):
        return value
    # A folder of this machine is served where it is.
    if value.startswith(_FILE) and "#" not in value and not is_archive(value):
        return value.removeprefix(_FILE)
    # Checked here, so that a mistake is told with its line.
    ModelUrl.parse(value)
    return value


def _version(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() else value


def job_name(value: str) -> str:
    """Return a name that a job can have, also as a part of file names; raise a `ValueError` for others."""
    if not _JOB_NAME.fullmatch(value) or value in (".", ".."):
        raise ValueError("no name of a job")
    return value


def _whole(value: Any) -> Any:
    named = {"true": True, "false": False, "": None}
    return named.get(value.strip().lower(), value) if isinstance(value, str) else value


def _devices(value: Any) -> Any:
    # OpenVINO writes GPU.1, and TensorFlow GPU:1.
    return "".join(value.lower().split()).replace(".", ":") if isinstance(value, str) else value


def _size(value: Any) -> Any:
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    return int(match[1]) << 10 * _UNITS[match[2].lower()] if match else value


def _mapping(value: Any) -> Any:
    return {} if value == "" else value


def _pair(value: Any) -> Any:
    if isinstance(value, str):
        if not value.strip():
            return None
        value = [int(part) if part.strip().isdecimal() else part for part in value.split(",")]
    return to_tuple(value)


def _channels(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = [value]
    if isinstance(value, list) and len(value) not in (1, 3):
        raise ValueError(f"{len(value)} numbers")
    return to_tuple(value)


def _not_zero(value: tuple[float, ...]) -> tuple[float, ...]:
    if 0 in value:
        raise ValueError("0 cannot divide")
    return value


def _cores(value: Any) -> Any:
    # -1 is the original's value for "not set".
    return None if value == -1 else value


def _secret_and_salt(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    secret, _, salt = value.rpartition(":")
    if value and not (secret and salt):
        raise ValueError("not two texts")
    return (secret, salt) if value else None


def _record_key(value: Any) -> Any:
    if value == "published":
        return published_key()
    pair = _secret_and_salt(value)
    return RecordKey(*pair) if isinstance(pair, tuple) else pair


def _filter(text: str) -> str:
    if text:
        filters.parse(text, {entry.name for entry in entry_points(group=filters.GROUP)})
    return text.strip()


JobName = Annotated[str, AfterValidator(job_name)]
"""Name of a job."""

ModelPath = Annotated[str, BeforeValidator(_model_path)]
"""Path of a folder, also written as file://path; or the address of a model in a store."""

ModelVersion = Annotated[Literal["latest"] | Annotated[int, Field(ge=0)], BeforeValidator(_version)]
"""Number of a version of the model, or `latest`."""

WholeInputs = Annotated[bool | Names | None, BeforeValidator(_whole)]
"""True or False, or names of inputs."""

DeviceNames = Annotated[str, BeforeValidator(_devices)]
"""Names of devices with commas between, in the way of `job.models.devices`; also written as GPU.1 and GPU:1."""

Size = Annotated[int, BeforeValidator(_size)]
"""Bytes, written as a number with or without one of the units k, m, g and t (of 1024)."""

Pair = Annotated[tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] | None, BeforeValidator(_pair)]
"""Two whole numbers of at least 1, written as "a,b" or [a, b]; empty for none."""

Channels = Annotated[tuple[float, ...], BeforeValidator(_channels)]
"""One number for all channels of an image, or three; written as a list or a single number."""

Divisors = Annotated[Channels, AfterValidator(_not_zero)]
"""Channels, none of which is 0."""

Padding = Annotated[dict[str, int | float], BeforeValidator(_mapping)]
"""Names with a number each; empty for none."""

Shapes = Annotated[tuple[tuple[int, ...], ...], BeforeValidator(to_tuple)]
"""Shapes, written as a list of lists."""

RecordKeyText = Annotated[RecordKey | None, BeforeValidator(_record_key)]
"""Secret and salt of a key for records, written as "secret:salt"; or `published`, or empty for none."""

Cores = Annotated[int | None, BeforeValidator(_cores)]
"""A number of cores; empty, or -1 as in the original, for none."""

SecretAndSalt = Annotated[tuple[str, str] | None, BeforeValidator(_secret_and_salt)]
"""Two texts, written as "secret:salt"; or empty for none."""

Filter = Annotated[str, AfterValidator(_filter)]
"""Filters as `protocol.values.filters.parse` reads them, or nothing."""
