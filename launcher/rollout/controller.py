"""The controller of a job: changes the job when its model, its load or a client asks for it.

Usage: python -m cluster_serving.launcher.rollout.controller CONFIG_FILE --since SECONDS

One supervised process per job runs this module, on the machine that runs the commands. For each change it reads the
configuration again and does what a command would do, under the same lock.
"""

from __future__ import annotations

import argparse
import logging
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from redis.exceptions import RedisError

from cluster_serving.job.models.folder import check_model
from cluster_serving.job.remote.url import is_url
from cluster_serving.launcher.command_log import log, say
from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.config import repository, versions
from cluster_serving.launcher.config.job_options import model_options
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import capacity, lifecycle, lock, model_files
from cluster_serving.launcher.jobs.store import JobStore, opened
from cluster_serving.launcher.rollout import change, control_requests, model_change
from cluster_serving.launcher.rollout.autoscaler import Autoscaler, Decision
from cluster_serving.launcher.rollout.change import Busy
from cluster_serving.launcher.rollout.model_watch import ModelWatch
from cluster_serving.launcher.rollout.models_watch import ModelsWatch
from cluster_serving.launcher.rollout.samples import sample
from cluster_serving.launcher.services import controller as service
from cluster_serving.launcher.services import redis_server
from cluster_serving.launcher.services.controller import WatchedModels
from cluster_serving.launcher.shipping import inspection
from cluster_serving.launcher.targets import target_of
from cluster_serving.protocol.errors import ModelError, ServingError
from cluster_serving.protocol.hosting.control import LOAD, MODEL_CONTROL, ControlRequest
from cluster_serving.protocol.keys import REFUSED_MODEL
from cluster_serving.protocol.scripts import PUT_CONTROLLER, Call, call, flat
from cluster_serving.protocol.slots import HEARTBEAT_S, SlotReport
from cluster_serving.settings.errors import SettingsError

_ROUND_S = 0.5
_LOOK_S = 1.0
"""Seconds between two looks at the model's folder and at the queue."""

_BEAT_S, _EXPIRES_S = 5.0, 15
"""Seconds between two reports of this controller, and after which a report counts for nothing."""

_AFTER_FAILURE_S = 300.0
"""Seconds without a change of the number of slots after one that failed."""

_ERRORS = (LaunchError, SettingsError, ServingError, RedisError, OSError)


class Controller:
    """The controller of one job.

    Args:
        path: The configuration file.
        since: Time at which a command has started this controller, by the clock of Redis. Of several controllers of a
            job, as on two machines, the one that was started last works.
    """

    def __init__(self, path: Path, since: str) -> None:
        self._path = path
        self._since = since
        self._config = config_file.read(path)
        self._job = self._config.job_name
        self._store = JobStore(redis_server.connect(self._config), self._job)
        watched = service.recall(self._config) or WatchedModels(self._look())
        self._watch = ModelWatch(watched.served, watched.refused)
        self._models_watch = ModelsWatch()
        self._refusal = watched.problem
        # Fingerprint of the folder when somebody began to change the job; None while nobody does.
        self._seen_before: str | None = None
        self._last_generation = self._store.generations().last
        self._autoscaler = _autoscaler(self._config)
        self._rests_until = 0.0
        self._looked_at = 0.0
        self._is_short = False
        self._event = "has changed nothing yet"
        self._is_last = True
        self._error = ""

    def run(self) -> NoReturn:
        """Work until a signal ends the process."""
        threading.Thread(target=self._keep_reporting, daemon=True).start()
        say(f"controller of job {self._job}: {', '.join(service.tasks(self._config))}")
        try:
            while True:
                self._work()
                time.sleep(_ROUND_S)
        finally:
            with suppress(*_ERRORS):
                if self._is_last:
                    self._store.client.delete(self._store.keys.controller)

    def _work(self) -> None:
        try:
            if self._is_last:
                self._round()
            self._error = ""
        except Exception as error:
            # Redis or Flink may be away for a while.
            text = str(error) if isinstance(error, _ERRORS) else traceback.format_exc()
            if text != self._error:
                say(text)
            self._error = text
            self._pause()

    def _round(self) -> None:
        if self._config.model_control and (request := control_requests.take(self._store)):
            self._answer(request)
        if time.monotonic() - self._looked_at < _LOOK_S:
            return
        self._looked_at = time.monotonic()
        if self._is_busy():
            self._pause()
            return
        self._note_others()
        if self._config.watch_model and (models := self._store.models()):
            self._look_at_models(models)
        elif self._config.watch_model:
            self._look_at_model()
        if self._autoscaler is not None:
            self._look_at_queue(self._autoscaler)

    def _is_busy(self) -> bool:
        """Return True while a person changes the job; end what a command that was killed meanwhile has left."""
        if lock.holder(self._store) or self._store.generations().trial:
            if self._seen_before is None:
                self._seen_before = self._look()
            return True
        return change.settle(self._config)

    def _note_others(self) -> None:
        """Note a change that a person has made: what was in the folder then is loaded, or left out on purpose."""
        last = self._store.generations().last
        if last != self._last_generation:
            self._last_generation = last
            self._note_served(self._look() if self._seen_before is None else self._seen_before)
        self._seen_before = None

    def _look(self) -> str:
        return model_files.look(self._config) if self._config.watch_model else ""

    # The model of the folder

    def _look_at_model(self) -> None:
        watch, refused, seen = self._watch, self._watch.refused, self._look()
        is_due = watch.is_due(seen, time.monotonic())
        if refused and not watch.refused:
            self._store.note_error("")
            self._remember()
        if not is_due or not is_started(self._store):
            return
        problem = self._change("Loading the model, whose files have changed", self._serve)
        if problem is None:
            self._note_served(seen)
        if problem is None or isinstance(problem, Busy):
            return
        watch.note(seen, is_served=False)
        self._refusal = f"the new model is not served until its files change: {problem}"
        self._remember()
        self._store.note_error(self._refusal)

    def _look_at_models(self, models: Mapping[str, SlotReport]) -> None:
        """Change each model of a job that serves several whose subfolder has changed."""
        if not is_started(self._store):
            return
        for name in self._models_watch.due(self._config, self._store, models, time.monotonic()):
            what = f"Changing the model {name}, whose files have changed"
            if self._change(what, partial(model_change.load, name=name)) is not None:
                self._models_watch.note_failed(name)

    def _serve(self, config: Config) -> None:
        if lifecycle.is_running(config):
            change.update(config)
        else:
            lifecycle.start(config)

    def _note_served(self, seen: str) -> None:
        self._watch.note(seen, is_served=True)
        self._remember()
        if self._autoscaler is not None:
            self._autoscaler.forget()

    def _remember(self) -> None:
        if not self._watch.refused:
            self._refusal = ""
        service.remember(self._config, WatchedModels(self._watch.served, self._watch.refused, self._refusal))
        with suppress(*_ERRORS):
            self._report(self._store)

    # The number of slots

    def _look_at_queue(self, autoscaler: Autoscaler) -> None:
        # A slot that has missed two heartbeats may have died, or its Redis was away.
        slots = self._store.slots(silent_after=2.5 * HEARTBEAT_S)
        if not slots or {slot.state for slot in slots} != {"ready"} or time.monotonic() < self._rests_until:
            self._pause()
            return
        decision = autoscaler.decide(sample(self._store, len(slots)))
        if decision is None:
            return
        possible = self._possible(decision, len(slots))
        if possible < len(slots):
            self._is_short = False
        # Told once, and not for as long as the load lasts.
        if decision.needed > possible and not self._is_short:
            self._is_short = True
            limit = "autoscale.max" if possible == self._config.autoscale_max else "what this machine can hold"
            self._tell(f"needs {decision.needed} slots, and {limit} is {possible}: {decision.reason}")
        if possible == len(slots):
            return
        what = f"Changing the number of slots from {len(slots)} to {possible}: {decision.reason}"
        if self._change(what, lambda config: change.scale(config, self._job, possible)) is not None:
            self._rests_until = time.monotonic() + _AFTER_FAILURE_S

    def _possible(self, decision: Decision, now: int) -> int:
        """Return the number of slots that this machine can hold of those that a job should have."""
        if decision.slots <= now or not target_of(self._config).is_here:
            return decision.slots
        files = self._files()
        return max(capacity.most(self._config, files, decision.slots), now)

    def _files(self) -> Sequence[Path]:
        """Return what a slot loads, of a folder of this machine."""
        if repository.find(inspection.shown(self._config)):
            # The size of several at an address is not known here.
            return [] if is_url(self._config.model_path) else [Path(self._config.model_path)]
        return check_model(model_options(versions.resolved(self._config))).paths

    def _pause(self) -> None:
        if self._autoscaler is not None:
            self._autoscaler.pause()

    # Requests of clients

    def _answer(self, request: ControlRequest) -> None:
        is_load, name = request.action == LOAD, request.model
        action: Callable[[Config], object] = self._load if is_load else self._unload
        if name:
            change_it = model_change.load if is_load else model_change.unload
            action = partial(change_it, name=name)
        what = f"{'Loading' if is_load else 'Unloading'} the model{f' {name}' if name else ''}"
        problem = self._change(f"{what}, as a client asks for it", action)
        if problem is not None and not isinstance(problem, ServingError):
            problem = (ModelError if request.action == LOAD else ServingError)(str(problem))
        control_requests.finish(self._store, request, problem)

    def _load(self, config: Config) -> None:
        seen = model_files.look(config)
        self._serve(config)
        self._note_served(seen)

    def _unload(self, config: Config) -> None:
        if lifecycle.is_running(config):
            lifecycle.stop(config, self._job)
        control_requests.note_unloaded(self._store)

    # Changes

    def _change(self, what: str, action: Callable[[Config], object]) -> Exception | None:
        """Carry out a change with the configuration as it is now; return why it failed, or None."""
        self._tell(what)
        try:
            config = self._read()
            action(config)
        except _ERRORS as error:
            self._tell(f"{what}; it failed: {error}")
            return error
        finally:
            with suppress(*_ERRORS):
                self._last_generation = self._store.generations().last
        if _limits(config) != _limits(self._config):
            self._autoscaler = _autoscaler(config)
        self._config = config
        self._tell(f"{what}; done")
        return None

    def _read(self) -> Config:
        config = config_file.read(self._path, say)
        inspection.look_again()
        if (config.job_name, config.redis_url) != (self._job, self._config.redis_url):
            raise LaunchError(
                f"{self._path} names another job or Redis than job {self._job} was started with; run "
                "cluster-serving-restart"
            )
        return config

    # Reports

    def _tell(self, event: str) -> None:
        say(event)
        self._event = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {event}"
        with suppress(*_ERRORS):
            self._report(self._store)
            self._store.tell(event)

    def _keep_reporting(self) -> None:
        while True:
            with suppress(*_ERRORS), opened(self._config) as store:
                while True:
                    self._report(store)
                    time.sleep(_BEAT_S)
            time.sleep(_BEAT_S)

    def _report(self, store: JobStore) -> None:
        fields = {"tasks": ", ".join(service.tasks(self._config)), "host": socket.gethostname(), "event": self._event}
        if self._refusal:
            fields[REFUSED_MODEL] = self._refusal
        if self._config.model_control:
            fields[MODEL_CONTROL] = "true"
        state = [self._since, _EXPIRES_S, *flat(fields)]
        is_last = bool(call(store.client, Call(PUT_CONTROLLER, [store.keys.controller], state)))
        if is_last != self._is_last:
            say("working again" if is_last else "resting: a controller that was started later has the job")
        self._is_last = is_last


def is_started(store: JobStore) -> bool:
    """Return True if a job was started and not stopped; its slots tell that where Redis has lost it."""
    state = store.record().state
    return state not in ("", "stopped") or (not state and any(each.state == "ready" for each in store.slots()))


def _autoscaler(config: Config) -> Autoscaler | None:
    least, most, target = _limits(config)
    return None if most is None else Autoscaler(least, most, target)


def _limits(config: Config) -> tuple[int, int | None, int]:
    return config.autoscale_min, config.autoscale_max, config.autoscale_target_queue_wait


def _end(number: int, _: object) -> None:
    # The second signal must not interrupt the undoing of a change.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + number)


def main() -> None:
    """Run the controller of the job of a configuration file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--since", required=True)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    shown = logging.StreamHandler(sys.stdout)
    shown.setLevel(logging.INFO)
    shown.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    log.addHandler(shown)
    controller = Controller(given.path, given.since)
    # Shown to commands that wait for this one.
    sys.argv = ["controller"]
    controller.run()


if __name__ == "__main__":
    main()
