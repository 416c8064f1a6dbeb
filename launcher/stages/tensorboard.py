"""Key of config.yaml for TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator

from cluster_serving.launcher.config.model import key
from cluster_serving.launcher.config.stages import StageKeys


def _folder(value: Any) -> Any:
    return ("tensorboard" if value else "") if isinstance(value, bool) else value


Folder = Annotated[str, BeforeValidator(_folder)]
"""The path of a folder, or true for the usual one; empty or false for none."""


class TensorBoardKeys(StageKeys):
    """The key of `connectors.stages.tensorboard`."""

    tensorboard: Folder = key(
        "",
        "true, the path of a folder, or empty",
        "Folder in which the first slot writes Serving Throughput and Total Records Number for TensorBoard, in a "
        "folder per job. true: tensorboard in the folder of this file. Empty: none.",
    )

    @classmethod
    def folders(cls, values: Mapping[str, Any]) -> Sequence[str]:
        """Return the key, if there is a folder."""
        return ["tensorboard"] if values["tensorboard"] else []

    @classmethod
    def extras(cls, values: Mapping[str, Any]) -> frozenset[str]:
        """Return the extra with the package that writes the files."""
        return frozenset({"tensorboard"} if values["tensorboard"] else ())
