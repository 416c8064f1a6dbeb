"""Targets that are installed: the entry points of the group `cluster_serving.targets`, and those that come along."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, distributions
from typing import Any, ClassVar, Protocol

from cluster_serving.settings.errors import SettingsError
from cluster_serving.settings.model import Settings

GROUP = "cluster_serving.targets"


def _entry(name: str, where: str) -> EntryPoint:
    return EntryPoint(name, f"cluster_serving.launcher.targets.{where}", GROUP)


_BUILT_IN = (
    _entry("local", "local:Local"),
    _entry("remote", "remote:Remote"),
    _entry("yarn-application", "yarn.application:YarnApplication"),
    _entry("yarn-session", "yarn.session:YarnSession"),
    _entry("kubernetes-application", "kubernetes.application:KubernetesApplication"),
    _entry("kubernetes-session", "kubernetes.session:KubernetesSession"),
)
# A configuration has the keys of all targets, and a command imports the one target that it uses.
_BUILT_IN_KEYS = (_entry("yarn", "yarn.keys:YarnKeys"), _entry("kubernetes", "kubernetes.keys:KubernetesKeys"))


class Kind(Protocol):
    """A class of targets; see `targets.base.Target`."""

    keys: ClassVar[type[Settings] | None]

    def __call__(self, config: Any) -> Any:
        """Make the target of a configuration."""

    def ships(self, config: Any) -> str:
        """Return `flink.ship` where it is empty."""


@cache
def _entries() -> Mapping[str, EntryPoint]:
    found = {entry.name: entry for entry in _BUILT_IN}
    # `entry_points` would parse the files of all distributions, for each command.
    for distribution in distributions():
        if GROUP in (distribution.read_text("entry_points.txt") or ""):
            for entry in distribution.entry_points.select(group=GROUP):
                found.setdefault(entry.name, entry)
    return found


def names() -> tuple[str, ...]:
    """Return the values of `flink.target`; nothing is imported for that."""
    return tuple(_entries())


@cache
def kind(name: str) -> Kind:
    """Return the class of a target.

    Raises:
        SettingsError: If its distribution cannot be imported.
    """
    entry = _entries()[name]
    try:
        loaded: Kind = entry.load()
    except Exception as error:
        # Entry points that are not read from metadata have no distribution.
        distribution = getattr(entry, "dist", None)
        where = f" of the distribution {distribution.name}" if distribution else ""
        raise SettingsError(f"the target {name}{where} cannot be used: {type(error).__name__}: {error}") from error
    return loaded


@cache
def keys() -> tuple[type[Settings], ...]:
    """Return the classes with the keys of the targets, each once."""
    built_in = {entry.name for entry in _BUILT_IN}
    others = (own for name in names() if name not in built_in and (own := kind(name).keys))
    return tuple(dict.fromkeys([*(entry.load() for entry in _BUILT_IN_KEYS), *others]))
