"""Stages that have keys in `config.yaml`, each in a file of `launcher.stages`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

from cluster_serving.settings.model import Settings

# By name, as the classes of targets: a module with keys imports that of `Config`.
_KEYS = ("payload_log:PayloadLogKeys", "tensorboard:TensorBoardKeys")


class StageKeys(Settings):
    """Base class of the keys of a stage.

    What a job does with them is the stage's own: it finds them in `RedisOptions.stages`, by the names of the fields.
    """

    headings: ClassVar[Mapping[str, str]] = {}
    """By section of the file that is of this stage alone, its comment in a new file."""

    @classmethod
    def folders(cls, values: Mapping[str, Any]) -> Sequence[str]:
        """Return the names of the keys whose values are paths of the machine with the file, which may be relative."""
        return ()

    @classmethod
    def addresses(cls, values: Mapping[str, Any]) -> Sequence[str]:
        """Return the addresses of stores that the stage uses."""
        return ()

    @classmethod
    def extras(cls, values: Mapping[str, Any]) -> frozenset[str]:
        """Return the extras of this distribution that the stage needs where the job runs, beside those of stores."""
        return frozenset()


@cache
def kinds() -> tuple[type[StageKeys], ...]:
    """Return the classes with the keys of the stages."""
    return tuple(EntryPoint("", f"cluster_serving.launcher.stages.{where}", "").load() for where in _KEYS)


def values(config: object) -> dict[str, Any]:
    """Return the values of these keys in a configuration."""
    return {name: getattr(config, name) for kind in kinds() if isinstance(config, kind) for name in kind.model_fields}
