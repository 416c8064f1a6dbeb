"""Types of the values of `config.yaml` that other settings do not have."""

from typing import Annotated, Any

from pydantic import BeforeValidator

from cluster_serving.job.remote.url import ARCHIVES, ModelUrl, is_url

_FILE = "file://"


def _model_path(value: Any) -> Any:
    if not isinstance(value, str) or not is_url(value):
        return value
    address, mark, _ = value.partition("#")
    # A folder of this machine is served where it is.
    if value.startswith(_FILE) and not mark and not address.lower().endswith(ARCHIVES):
        return value.removeprefix(_FILE)
    # Checked here, so that a mistake is told with its line.
    ModelUrl.parse(value)
    return value


ModelPath = Annotated[str, BeforeValidator(_model_path)]
"""Path of a folder, also written as file://path; or the address of a model in a store."""
