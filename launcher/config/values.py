"""Types of the values of `config.yaml` that other settings do not have."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from cluster_serving.job.remote.url import ModelUrl, is_archive, is_url
from cluster_serving.settings.values import Names

LATEST = "latest"
"""Value of `modelVersion`: the highest number."""

_FILE = "file://"
_JOB_NAME = re.compile(r"(?=.{1,200}$)(\{[A-Za-z0-9_.-]+\})?[A-Za-z0-9_.-]*")


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
