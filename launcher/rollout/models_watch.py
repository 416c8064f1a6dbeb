"""Detection of changes of the subfolders of a job that serves several models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cluster_serving.job.remote.url import is_url
from cluster_serving.launcher.config import repository
from cluster_serving.launcher.config.job_options import job_options
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.jobs import hosted, model_files
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.launcher.rollout.model_watch import SETTLED_S, ModelWatch
from cluster_serving.launcher.shipping import inspection
from cluster_serving.protocol.hosting.control import UNLOADED
from cluster_serving.protocol.hosting.orders import CONTENT, REFUSED_CONTENT
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport

_GONE = "gone"
"""In place of the fingerprint of a subfolder that has gone."""

_STORE_LOOK_S = 30.0
"""Seconds between two looks at a store: one costs a second of CPU."""


class ModelsWatch:
    """Decision which models of a job are to be loaded again, or removed; see `ModelWatch` for each."""

    def __init__(self) -> None:
        self._watches: dict[str, ModelWatch] = {}
        self._contents: dict[str, tuple[str, str]] = {}
        self._next_look = 0.0
        self._failed: dict[str, str] = {}

    def note_failed(self, name: str) -> None:
        """Note that a change that was due could not be made: it is not due again until the files change."""
        self._failed[name] = self._watches[name].seen

    def due(self, config: Config, store: JobStore, models: Mapping[str, SlotReport], now: float) -> list[str]:
        """Return the names of the models whose change is due; `models` are those that the job has.

        One that somebody has unloaded is not due, unless its subfolder has gone.
        """
        if is_url(config.model_path):
            if now < self._next_look:
                return []
            inspection.look_again()
        config = inspection.shown(config)
        found = repository.find(config)
        self._next_look = now + _STORE_LOOK_S
        if found is None:
            return []
        # A subfolder that goes and comes back is tried again.
        self._failed = {name: seen for name, seen in self._failed.items() if seen == _GONE or name in found.names}
        due = []
        for name in sorted({*models, *found.names}):
            seen = self._content(config, name) if name in found.names else _GONE
            watch = self._watches.setdefault(name, ModelWatch(""))
            served, refused = store.client.hmget(JobKeys(name).record, CONTENT, REFUSED_CONTENT)
            # Redis may have lost its data: what was known still holds.
            if served is None and name in models:
                served = watch.served
            known = watch.refused if served == watch.served else ""
            watch.served, watch.refused = served or "", refused or self._failed.get(name, "") or known
            stays = seen != _GONE and name in models and models[name].state == UNLOADED
            if watch.is_due(seen, now) and not stays:
                due.append(name)
            elif seen not in (watch.served, watch.refused) and not stays:
                self._next_look = now + SETTLED_S
        return due

    def _content(self, config: Config, name: str) -> str:
        """Return the fingerprint of a model, by which its changes are counted."""
        folder = Path(config.model_path, name)
        # Its configuration is read only if a file has changed.
        looked = model_files.content(folder)
        if looked != self._contents.get(name, ("", ""))[0]:
            one = repository.hosted(config, job_options(config, ""), name, folder)
            self._contents[name] = looked, hosted.content(one)
        return self._contents[name][1]
