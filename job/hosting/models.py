"""The models of a slot that serves several: they are loaded one by one, and described in one hash of the job."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import redis
from redis.exceptions import RedisError

from cluster_serving.connectors.slot import rights
from cluster_serving.connectors.slot.limits import publish_limits
from cluster_serving.connectors.slot.metrics import Metrics
from cluster_serving.connectors.slot.redis import connect, write_hash
from cluster_serving.connectors.slot.reporting import SlotReporter
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.job.hosting import deaths, now
from cluster_serving.job.hosting.change import Change
from cluster_serving.job.hosting.fetched import fetched
from cluster_serving.job.hosting.leak import LOADS
from cluster_serving.job.hosting.model import AbsentModel, HostedModel
from cluster_serving.job.loading.figures import process_gauges
from cluster_serving.job.loading.secret import SECRET_TIMEOUT, wait_for_secret
from cluster_serving.job.options import HostedOptions, JobOptions
from cluster_serving.job.remote.url import ModelUrl, is_url
from cluster_serving.job.slot_model import load_error
from cluster_serving.protocol.errors import InvalidInput, ModelError, RedisUnavailable
from cluster_serving.protocol.host import memory
from cluster_serving.protocol.hosting.control import UNLOADED
from cluster_serving.protocol.hosting.models import HOST
from cluster_serving.protocol.hosting.orders import CHANGED, CONTENT, KEPT_OUT, VERSION, removed
from cluster_serving.protocol.keys import JobKeys, as_text
from cluster_serving.protocol.slots import SlotReport, read_reports

log = logging.getLogger(__name__)

_MOST_TOLD = 20
"""Most names in a message."""


class HostedModels:
    """All models of a slot. Those that cannot be loaded are left out, and described with the reason.

    Args:
        options: Options of the job.
        shared: What the slot of the job shares.
        metrics: Metrics of the function around the models.
        end: File in which the process records its end, see `Attempt.end`.
        first_attempt: False if Flink has started this slot again.

    Attributes:
        client: Connection to the job's Redis.
        served: The models that are loaded, by name.
        queues: These and all else that has a queue, by name: models that are not loaded, and the job itself, whose
            requests name no model.
        reports: Description of each model, by name.
        options_of: Options of each model, by name.
        kept: Fields of the record of each model that was changed, by name: a slot that starts again needs them.
        unfinished: Changes by the thread that serves, which `Changes` writes to Redis.
        on_unfinished: Called when there is such a change.
        left: Models that this slot could not load, and others may have: it leaves their requests to those.
        later: Names of the models that are still to be loaded (`Changes`), while the others are served: Flink has
            started the slot again.
        index: Index of the slot.
        has_others: True if the job has several slots.

    Raises:
        ModelError: If none can be loaded; that has been reported.
    """

    def __init__(
        self, options: JobOptions, shared: SharedSlot, metrics: Metrics, end: str = "", first_attempt: bool = True
    ) -> None:
        self._options = options
        self._keys = JobKeys(options.redis.job)
        # The slot shares its counts for as long as one of its parts holds it.
        self._shared = shared
        self._metrics = metrics
        self._end = end
        self.served: dict[str, HostedModel] = {}
        self.queues: dict[str, HostedModel | AbsentModel] = {}
        self.reports: dict[str, SlotReport] = {}
        self.options_of: dict[str, HostedOptions] = {}
        self.kept: dict[str, dict[str, str]] = {}
        self.unfinished: deque[Change] = deque()
        self.on_unfinished: Callable[[], None] = lambda: None
        self.left: dict[str, AbsentModel] = {}
        self.later: list[str] = []
        # Those of them that may have ended the process.
        self._suspected: set[str] = set()
        self.index = shared.index
        self.has_others = options.model_parallelism > 1
        self._due: deque[Change] = deque()
        # Models whose report by this slot was written to Redis, which may have lost it.
        self._told: set[str] = set()
        with ExitStack() as opened:
            self.client: redis.Redis = opened.enter_context(connect(options.redis))
            self._reporter = SlotReporter(self.client, options.redis, options.submission, shared.index)
            self._reporter.loading()
            opened.callback(self._reporter.close)
            opened.callback(_close, self.served)
            try:
                self._load(first_attempt)
            except Exception as error:
                known = load_error(error)
                self._reporter.failed(known.code, options.model.as_configured(str(known)))
                raise
            if not self.later:
                self.loaded()
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Release the models, and end the reports."""
        self._opened.close()

    def loaded(self) -> None:
        """Report that all models are loaded."""
        began, before = self._began
        self._shared.counts.gauges = process_gauges(time.monotonic() - began, memory.resident() - before)
        self._reporter.ready(self._summary())

    @property
    def due(self) -> Change | None:
        """The change that is made next; None if there is none."""
        return self._due[0] if self._due else None

    def plan(self, change: Change, one: HostedOptions | None, kept: Mapping[str, str]) -> None:
        """Let a change be made between two batches, also of what is kept of the model; any thread may call this."""
        change.one, change.kept = one, dict(kept)
        self._due.append(change)

    def apply(self, change: Change) -> None:
        """Make the change that is due, in the thread that serves."""
        name = change.name
        self._told.discard(name)
        change.earlier = self.served.pop(name, None)
        if isinstance(change.model, HostedModel):
            self.served[name] = change.model
        self.left.pop(name, None)
        if change.leaves and isinstance(change.model, AbsentModel):
            self.left[name] = change.model
        if change.model is None or change.leaves:
            self.queues.pop(name, None)
        else:
            self.queues[name] = change.model
        if change.report is None:
            self.reports.pop(name, None)
        else:
            self.reports[name] = change.report
        if change.one is None:
            self.options_of.pop(name, None)
            self.kept.pop(name, None)
        else:
            self.options_of[name], self.kept[name] = change.one, change.kept
        self._name_all()
        self._due.popleft()
        change.made.set()

    def check(self, name: str) -> None:
        """Report what requests have told of a model, and put it aside if it hangs or leaks."""
        model = self.queues[name]
        changed = model.check()
        problem = model.problem() if isinstance(model, HostedModel) else ""
        # Other threads plan changes meanwhile.
        if problem and all(change.name != name for change in self._due.copy()):
            self._put_aside(name, f"it is put aside: {problem}")
        elif changed:
            self.reports[name] = self.served[name].report()
            self._tell([name])

    def publish(self) -> None:
        """Write the descriptions of the models, and their limits, which clients read.

        Raises:
            redis.RedisError: If Redis cannot be used.
        """
        for one in self.queues.values():
            publish_limits(self.client, one.options.redis)
        if self.later:
            self._announce()
        # What a change has not told yet, it tells itself, when other slots are ready.
        self._tell([name for name in self.reports if name in self._told or not self._told])
        changed = max((kept.get(CHANGED, "") for kept in self.kept.values()), default="")
        if changed and self.has_others:
            write_hash(self.client, self._keys.record, {CHANGED: changed})

    def wanted(self) -> str:
        """Return the name of the model of `later` that is loaded next: most requests wait for it.

        One that may have ended the process comes last.

        Raises:
            redis.RedisError: If Redis cannot be used.
        """
        safe = [name for name in self.later if name not in self._suspected]
        if len(safe) < 2:
            return (safe or self.later)[0]
        waiting = dict.fromkeys(safe, 0)
        streams = [(name, stream) for name in safe for stream in JobKeys(name).streams]
        with self.client.pipeline(transaction=False) as pipeline:
            for _, stream in streams:
                pipeline.xlen(stream)
            for (name, _), length in zip(streams, pipeline.execute(), strict=True):
                waiting[name] += length
        return max(safe, key=waiting.__getitem__)

    def describe(self, name: str, of_job: bool = True) -> None:
        """Write what has become of one model by a change; see `publish`.

        Without `of_job`, other slots may still serve what was before: only what is this slot's is written.
        """
        # Other slots take a model that is not described any more for one that was removed.
        if of_job and not self.is_described():
            self.publish()
        while (report := self.reports.get(name)) is not None:
            if (one := self.queues.get(name)) is not None:
                publish_limits(self.client, one.options.redis)
            self._tell([name], of_job)
            # Requests may have told something meanwhile.
            if report is self.reports.get(name):
                break
        else:
            if of_job:
                self.client.hdel(self._keys.models, name)
        if not self.later:
            self._reporter.ready(self._summary())

    def is_described(self) -> bool:
        """Return True if Redis has the descriptions of this slot.

        Raises:
            redis.RedisError: If Redis cannot be used.
        """
        # Redis may have lost all of them, and got one again since, by a change.
        with self.client.pipeline(transaction=False) as pipeline:
            pipeline.exists(self._keys.models)
            for name in [*self._told]:
                pipeline.hget(JobKeys(name).slots(), str(self.index))
            return all(pipeline.execute())

    def settled(self) -> list[Change]:
        """Return the changes to models that no slot could load: each slot answers their requests with the reason."""
        found = []
        for name, absent in self.left.items():
            told: Any = self.client.hgetall(JobKeys(name).slots())
            failed = [report.index for report in read_reports(told) if report.state == "failed"]
            if len(failed) >= self._options.model_parallelism:
                found.append(Change(name, absent, self.reports[name]))
        return found

    def given_up(self, change: Change) -> dict[str, str]:
        """Return the fields of the record of a model that no slot could load: one that starts again does not try it."""
        reason = change.report and change.report.error
        return {KEPT_OUT: reason or "", CHANGED: repr(time.time())}

    def load(self, one: HostedOptions) -> HostedModel:
        """Load a model.

        Raises:
            Exception: If it cannot be loaded.
        """
        if one.refused:
            raise ModelError(one.refused)
        rights.check(self.client, one.name)
        own = fetched(self._options.of_hosted(one))
        try:
            with LOADS.noted():
                secret = self._reporter.secret
                return HostedModel(own, self._shared.index, self.client, self._metrics, secret, self._end)
        except Exception as error:
            known = load_error(error)
            raise type(known)(own.model.as_configured(str(known))) from error

    def begin(self, one: HostedOptions, kept: Mapping[str, str]) -> Change:
        """Return the change to a model as its record says, which is loaded if it can be."""
        if kept[KEPT_OUT] == UNLOADED:
            return self.unloaded(one)
        if reason := kept[KEPT_OUT]:
            return self.failed(one, ModelError(reason))
        try:
            model = self.load(one)
        except Exception as error:
            return self.failed(one, error, leaves=self.has_others)
        return Change(one.name, model, model.report())

    def failed(self, one: HostedOptions, error: Exception, leaves: bool = False) -> Change:
        """Return the change to a model that cannot be loaded, and tell of it; see `Change.leaves`."""
        known, own = load_error(error), self._options.of_hosted(one)
        message, redis = own.model.as_configured(str(known)), own.redis
        log.warning("model %s of job %s is not served: %s", one.name, self._options.redis.job, message)
        self._reporter.tell(f"does not serve the model {one.name}: {message}")
        report = replace(
            self.reports.get(one.name) or SlotReport("", ""),
            state="failed",
            code=known.code,
            error=message,
            time=time.time(),
            version=redis.version,
            numbered=redis.numbered,
        )
        # Streams that Redis refuses cannot be read: a read of all would fail.
        refused = isinstance(error, RedisUnavailable)
        told = ModelError(f"model {one.name!r} is not served: {message}")
        return Change(one.name, None if refused else self._absent(one, told), report, leaves=leaves)

    def unloaded(self, one: HostedOptions, has_gone: bool = False) -> Change:
        """Return the change to a model that somebody has unloaded, or whose subfolder has gone."""
        told = ModelError(f"model {one.name!r} was unloaded; cluster-serving-cli update {one.name} loads it again")
        if has_gone:
            told = removed(one.name, self._options.redis.job)
        report = replace(
            self.reports.get(one.name) or SlotReport("", ""),
            state=UNLOADED,
            code=None,
            error=None,
            time=time.time(),
        )
        return Change(one.name, self._absent(one, told), report)

    def _absent(self, one: HostedOptions, told: ModelError) -> AbsentModel:
        own = self._options.of_hosted(one)
        return AbsentModel(own, SharedSlot.of(own.redis.name, self._shared.index), told)

    def _put_aside(self, name: str, reason: str) -> None:
        one = self.options_of[name]
        change = self.failed(one, ModelError(reason))
        self.plan(change, one, {**self.kept[name], KEPT_OUT: reason, CHANGED: repr(time.time())})
        self.unfinished.append(change)
        self.on_unfinished()

    def _tell(self, names: Sequence[str], of_job: bool = True) -> None:
        """Write the descriptions of models where clients look; those `of_job` also where the commands look."""
        # One that another slot may have loaded is described by that slot.
        described = {name: self.reports[name].to_json() for name in names if of_job and name not in self.left}
        if described:
            write_hash(self.client, self._keys.models, described)
        # Redis refuses the keys of the others.
        for name in [name for name in names if name in self.queues or name in self.left]:
            # Clients know of no other job than the one that they name: they look for a report of its slots.
            report = {str(self.index): self.reports[name].to_json()}
            write_hash(self.client, JobKeys(name).slots(), report)
            one = self.options_of[name]
            counted = {VERSION: one.version, CONTENT: one.content} if one.content else {}
            fields = {HOST: self._options.redis.job, **counted, **self.kept.get(name, {})}
            write_hash(self.client, JobKeys(name).record, fields)
            self._told.add(name)

    def _load(self, first_attempt: bool) -> None:
        options = self._options
        rights.check(self.client, options.redis.job)
        if options.model.encrypted:
            # A slot that waits cannot be cancelled, and the launcher cancels the job after the first attempt.
            timeout = SECRET_TIMEOUT if first_attempt else 0.0
            self._reporter.secret = wait_for_secret(self.client, options.redis.job, timeout)
        self._began = time.monotonic(), memory.resident()
        self.kept = now.read(self.client, options)
        if not first_attempt:
            with suppress(RedisError):
                self._announce()
        for name, kept in self.kept.items():
            self.options_of[name] = now.options_of(options, name, kept)
            deadly = set() if kept[KEPT_OUT] else deaths.found(self.client, name)
            if cause := deaths.cause(deadly):
                kept.update({KEPT_OUT: cause, CHANGED: repr(time.time())})
            self.later.append(name)
            if deadly:
                self._suspected.add(name)
        for name in [*self.later]:
            if first_attempt or self.kept[name][KEPT_OUT]:
                self._load_one(name)
        while self.later and not self.served:
            self._load_one(self.wanted())
        self._name_all()
        self.publish()
        for change in self.settled():
            self.kept[change.name].update(self.given_up(change))
            self._at_once(change)
            self._tell([change.name])
        was_changed = any(any(fields.values()) for fields in self.kept.values())
        if not (self.served or was_changed):
            told = "; ".join(f"{name}: {report.error}" for name, report in [*self.reports.items()][:_MOST_TOLD])
            path = options.model.path
            place = ModelUrl.parse(path) if is_url(path) else path
            raise ModelError(f"none of the models of {place} can be loaded; {told}")

    def _load_one(self, name: str) -> None:
        self.later.remove(name)
        self._at_once(self.begin(self.options_of[name], self.kept[name]))

    def _announce(self) -> None:
        """Tell which models are loaded again: Redis may have lost them, and other slots may serve them meanwhile."""
        loading = SlotReport("", "loading").to_json()
        described: Any = self.client.hgetall(self._keys.models)
        lost = self.kept.keys() - {*map(as_text, described)}
        if lost:
            write_hash(self.client, self._keys.models, dict.fromkeys(lost, loading))
        for name in self.kept if self.has_others else lost:
            write_hash(self.client, JobKeys(name).slots(), {str(self.index): loading})

    def _at_once(self, change: Change) -> None:
        """Make a change while nothing serves yet."""
        self.plan(change, self.options_of[change.name], self.kept[change.name])
        self.apply(change)

    def _name_all(self) -> None:
        """Let requests that name the job instead of a model be answered with the names of its models."""
        options, served = self._options, sorted(self.served)
        names = ", ".join(served[:_MOST_TOLD]) + (", ..." if len(served) > _MOST_TOLD else "")
        unnamed = InvalidInput(f"the job {options.redis.job} serves several models; name one of them: {names}")
        self.queues[options.redis.job] = AbsentModel(options, self._shared, unnamed)

    def _summary(self) -> SlotReport:
        largest = max((one.options.batch.max_batch_size for one in self.served.values()), default=0)
        return SlotReport("", "", engine=f"{len(self.served)} models", max_batch_size=largest)


def _close(served: dict[str, HostedModel]) -> None:
    for model in served.values():
        model.close()
